"""Bodies of requests: read as they stream, within bounds of bytes and time; JSON or safetensors."""

import asyncio
import json
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

from safetensors import SafetensorError
from safetensors.numpy import load
from starlette.requests import ClientDisconnect, Request

from lastlayer.core.files import say
from lastlayer.live.service.refusal import AGAIN, CLOSE, Refusal

MOST = 64 << 20  # bytes of a body
MOST_TOGETHER = 512 << 20  # and of all that are being read or worked on
SECONDS = 30.0  # for a whole body to come, and as long for each further MOST of a larger one
ARRIVING = ".arriving.safetensors."  # a start removes what a kill left of it
JSON, TENSORS = "application/json", ("application/safetensors", "application/vnd.safetensors")


class Bodies:
    """Reads bodies, and knows how many bytes of them there are."""

    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self.most, self.seconds, self.held = most, seconds, 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body; its bytes count until the block ends."""
        body = bytearray()

        def keep(part: bytes) -> None:
            body.extend(part)
            self.held += len(part)
            if self.held > MOST_TOGETHER:
                raise Refusal(503, "too many bodies at once: try again", AGAIN | CLOSE)

        try:
            await self._take(request, self.most, keep)
            yield bytes(body)
        finally:
            self.held -= len(body)

    @asynccontextmanager
    async def saved(self, request: Request, folder: Path, most: int) -> AsyncIterator[Path]:
        """Yield a file of a larger body, which takes no memory; it is gone when the block ends."""
        try:
            descriptor, name = tempfile.mkstemp(dir=folder, prefix=ARRIVING)
        except OSError as error:
            raise _not_kept(error) from None
        try:
            try:
                with open(descriptor, "wb") as file:
                    await self._take(request, most, file.write)
            except OSError as error:
                raise _not_kept(error) from None
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    async def _take(self, request: Request, most: int, keep: Callable[[bytes], object]) -> None:
        """Keep the parts of a body as they come, while it is not too large or too slow."""
        length, size = request.headers.get("content-length", ""), 0
        if length.isdigit() and int(length[:20]) > most:
            raise Refusal(413, f"a body may have at most {most:,} bytes", CLOSE)
        seconds = self.seconds * max(most / MOST, 1)
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise Refusal(413, f"a body may have at most {most:,} bytes", CLOSE)
                    keep(part)
        except TimeoutError:
            sentence = f"the body must come within {seconds:g} seconds"
            raise Refusal(400, sentence, CLOSE) from None
        except ClientDisconnect:
            raise Refusal(400, "the body ended early", CLOSE) from None


def _not_kept(error: OSError) -> Refusal:
    return Refusal(503, f"cannot keep the body: {say(error)}", AGAIN | CLOSE)


def content_type(request: Request) -> str:
    """Return what a body says it is, without parameters."""
    return str(request.headers.get("content-type", "")).partition(";")[0].strip().lower()


def parse(request: Request, body: bytes) -> dict[str, Any]:
    """Return the fields of a body: JSON, or safetensors with the tensor ``rows`` and metadata."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "the body must not be compressed")
    kind = content_type(request)
    if kind == JSON:
        return parse_json(body)
    if kind in TENSORS:
        return parse_tensors(body)
    raise Refusal(415, f"the content type must be {JSON} or {TENSORS[0]}")


def parse_json(body: bytes) -> dict[str, Any]:
    """Return an object; refuse NaN and infinity, which JSON has none of."""
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refusal(400, "the body must be a JSON object")
    return found


def parse_tensors(body: bytes) -> dict[str, Any]:
    """Return the tensor ``rows``, and what the metadata says: each value is JSON."""
    try:
        tensors = load(body)
        (length,) = struct.unpack("<Q", body[:8])
        about = json.loads(body[8 : 8 + length]).get("__metadata__", {})
        fields: dict[str, Any] = {key: json.loads(value) for key, value in about.items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, struct.error):
        raise Refusal(400, "the body is not safetensors with metadata of JSON values") from None
    if set(tensors) != {"rows"}:
        raise Refusal(400, "the body must have one tensor, called rows")
    return {**fields, **tensors}


def fields(
    found: Mapping[str, Any], needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> tuple[Any, ...]:
    """Return fields in their order; refuse a body that lacks one, or has others."""
    if missing := [name for name in needed if name not in found]:
        raise Refusal(400, f"the body must have {' and '.join(missing)}")
    if unknown := sorted(found.keys() - {*needed, *optional}):
        known = ", ".join((*needed, *optional))
        raise Refusal(400, f"the body has {unknown[0][:50]!r}, but may have only: {known}")
    for name in ("labels", "to"):
        if name in found and not isinstance(found[name], list):
            raise Refusal(400, f"{name} must be a list, one for each row")
    return tuple(found.get(name) for name in (*needed, *optional))


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number in JSON")
