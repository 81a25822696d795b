"""The Open Inference Protocol, version 2: what Triton's and KServe's clients speak.

Tensors are JSON, or follow the JSON as bytes (Triton's extension for binary tensors), whose length
the header ``Inference-Header-Content-Length`` gives; tritonclient sends them so by default.
"""

import asyncio
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lastlayer.core.version import __version__
from lastlayer.live.live_head import LiveHead
from lastlayer.live.service.bodies import Bodies, parse_json
from lastlayer.live.service.refusal import Refusal, says
from lastlayer.live.snapshot import Answer, Snapshot
from lastlayer.live.store.entry import Rows

INLINE = 1 << 22  # features × classes of rows that are answered without a thread: below 10 ms
LENGTH = "inference-header-content-length"
TYPES = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
OUTPUTS = {"label": "BYTES", "probability": "FP64"}


class Inference:
    """Handlers of the protocol; the names of the heads are those of the models."""

    def __init__(self, heads: Mapping[str, LiveHead], bodies: Bodies) -> None:
        self.heads, self.bodies = heads, bodies

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        found: list[BaseRoute] = [
            Route("/v2", self.server),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.ready),
        ]
        for of in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            found += [
                Route(of, self.model),
                Route(f"{of}/ready", self.model_ready),
                Route(f"{of}/infer", self.infer, methods=["POST"]),
            ]
        return found

    async def server(self, _: Request) -> Response:
        """Say what the server is."""
        about = {"name": "lastlayer", "version": __version__}
        return says(200, {**about, "extensions": ["binary_tensor_data"]})

    async def live(self, _: Request) -> Response:
        """Say that the server is there."""
        return says(200, {"live": True})

    async def ready(self, _: Request) -> Response:
        """Say whether every head can answer."""
        ready = all(head.through >= 0 for head in self.heads.values())
        return says(200 if ready else 503, {"ready": ready})

    async def model_ready(self, request: Request) -> Response:
        """Say whether a head can answer."""
        name, head = self._head(request)
        ready = head.through >= 0
        return says(200 if ready else 503, {"name": name, "ready": ready})

    async def model(self, request: Request) -> Response:
        """Say what a head takes and gives."""
        name, head = self._head(request)
        rows = {"name": "rows", "datatype": "FP64", "shape": [-1, head.in_features]}
        return says(200, {
            "name": name, "versions": ["1"], "platform": f"lastlayer_{head.name}",
            "inputs": [rows],
            "outputs": [{"name": n, "datatype": t, "shape": [-1]} for n, t in OUTPUTS.items()],
        })  # fmt: skip

    async def infer(self, request: Request) -> Response:
        """Answer rows."""
        name, head = self._head(request)
        async with self.bodies.read(request) as body:
            asked, binary = _split(request, body)
            _, answer = await answered(head, head.checked(_rows(asked, binary)))
            return _said(name, asked, answer)

    def _head(self, request: Request) -> tuple[str, LiveHead]:
        name, version = request.path_params["name"], request.path_params.get("version", "1")
        if name not in self.heads or version != "1":
            raise Refusal(404, f"there is no model {name[:100]!r} of version {version[:20]!r}")
        return name, self.heads[name]


async def answered(head: LiveHead, z: Rows) -> tuple[Snapshot, Answer]:
    """Answer rows, which are checked, in a thread where there are many; say what answered."""
    if head.fresh == 0 and head.through < head.change:
        await asyncio.to_thread(head.catch_up)
    snapshot = head.snapshot
    small = z.size * max(snapshot.n_classes, 1) <= INLINE
    answer = snapshot.answer(z) if small else await asyncio.to_thread(snapshot.answer, z)
    head.show(snapshot, z)
    return snapshot, answer


def _split(request: Request, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of a request, and the bytes that follow it."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "the body must not be compressed")
    length = request.headers.get(LENGTH)
    if length is None:  # JSON, whatever it says it is: tritonclient says nothing
        return parse_json(body), b""
    if not (length.isascii() and length.isdigit()) or len(length) > 20 or int(length) > len(body):
        raise Refusal(400, f"{LENGTH} must be a number of bytes of the body")
    return parse_json(body[: int(length)]), body[int(length) :]


def _rows(asked: Mapping[str, Any], binary: bytes) -> Any:
    """Return the one input as an array (n, h)."""
    inputs = asked.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise Refusal(400, "inputs must be a list of one tensor")
    (given,) = inputs
    shape, kind = given.get("shape"), given.get("datatype")
    whole = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    if not whole or len(shape) != 2 or not isinstance(kind, str) or kind not in TYPES:
        raise Refusal(400, f"the input must have shape [n, h] and a datatype of {', '.join(TYPES)}")
    size = _parameters(given).get("binary_data_size")
    n, h = shape
    try:
        if size is None:
            return np.array(given.get("data"), dtype=TYPES[kind]).reshape(n, h)
        if type(size) is not int or size != len(binary) or size != n * h * int(TYPES[kind][-1]):
            raise Refusal(400, "binary_data_size must be that of the shape, and of what follows")
        return np.frombuffer(binary, TYPES[kind]).reshape(n, h)
    except (TypeError, ValueError, OverflowError):
        raise Refusal(400, "the data must be numbers, as many as the shape says") from None


def _parameters(of: Mapping[str, Any]) -> Mapping[str, Any]:
    found = of.get("parameters") or {}
    if not isinstance(found, dict):
        raise Refusal(400, "parameters must be an object")
    return found


def _said(name: str, asked: Mapping[str, Any], answer: Answer) -> Response:
    wanted = asked.get("outputs")
    if wanted is None:
        wanted = [{"name": output} for output in OUTPUTS]
    if not isinstance(wanted, list) or not all(isinstance(one, dict) for one in wanted):
        raise Refusal(400, "outputs must be a list of objects")
    of_all = _parameters(asked).get("binary_data_output", False)
    outputs, tails = [], []
    for one in wanted:
        output = one.get("name")
        if not isinstance(output, str) or output not in OUTPUTS:
            raise Refusal(400, f"there is no output {str(output)[:50]!r}: {', '.join(OUTPUTS)}")
        values = _values(output, answer)
        about: dict[str, Any] = {"name": output, "datatype": OUTPUTS[output]}
        about["shape"] = [len(values)]
        if _parameters(one).get("binary_data", of_all):
            tails.append(_packed(output, values))
            about["parameters"] = {"binary_data_size": len(tails[-1])}
        else:
            about["data"] = values
        outputs.append(about)
    content: dict[str, Any] = {"model_name": name, "model_version": "1", "outputs": outputs}
    content["parameters"] = {"through": answer.through}
    if isinstance(asked.get("id"), str):
        content["id"] = asked["id"]
    if not tails:
        return says(200, content)
    head = json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    headers = {LENGTH: str(len(head))}
    return Response(b"".join([head, *tails]), 200, headers, "application/octet-stream")


def _values(output: str, answer: Answer) -> list[Any]:
    """Return what an output holds; a row that was turned away has the empty label."""
    if output == "label":
        return ["" if label is None else str(label) for label in answer.labels]
    return answer.probabilities


def _packed(output: str, values: list[Any]) -> bytes:
    if output == "probability":
        return np.array(values, dtype="<f8").tobytes()
    texts = [value.encode() for value in values]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
