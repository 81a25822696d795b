"""The plain protocol: predict, learn, forget, relabel, and what the page and other programs ask."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from lastlayer.errors import UnsupportedError
from lastlayer.live.live_head import LiveHead, a_name
from lastlayer.live.replica import Replica
from lastlayer.live.service.about import status_of
from lastlayer.live.service.bodies import Bodies, fields, parse
from lastlayer.live.service.infer import answered
from lastlayer.live.service.refusal import Refusal, says
from lastlayer.live.store.entry import FORGET, LEARN, RELABEL
from lastlayer.live.watch_thread import Watched

MOST_HEAD = 2 << 30  # bytes of a head that is sent here
BYTES = "application/octet-stream"
Handler = Callable[[LiveHead, Request], Awaitable[Response]]


class Plain:
    """Handlers of one service."""

    def __init__(self, heads: Mapping[str, LiveHead], bodies: Bodies) -> None:
        self.heads, self.bodies = heads, bodies

    def routes(self) -> list[BaseRoute]:
        """Return the routes, of each head under its name, of an only one also without."""
        handlers: list[tuple[str, str, Handler]] = [
            ("POST", "predict", self.predict),
            ("POST", "invocations", self.invocations),
            ("POST", "learn", self.learn),
            ("POST", "forget", self.forget),
            ("POST", "relabel", self.relabel),
            ("GET", "status", self.status),
            ("GET", "review", self.review),
            ("GET", "watch", self.watch),
            ("POST", "watch/reset", self.reset_watch),
            ("GET", "state", self.state),
            ("GET", "delta", self.delta),
            ("POST", "delta", self.acknowledge),
            ("POST", "reload", self.reload),
        ]
        found: list[BaseRoute] = []
        for name, head in self.heads.items():
            for method, verb, handler in handlers:
                paths = [f"/{name}/{verb}", *([f"/{verb}"] if len(self.heads) == 1 else [])]
                found += [Route(path, _bound(handler, head), methods=[method]) for path in paths]
            of = f"/v1/models/{name}:predict"
            found.append(Route(of, _bound(self.invocations, head), methods=["POST"]))
        return [*found, Route("/health", health), Route("/ping", health)]

    async def predict(self, head: LiveHead, request: Request) -> Response:
        """Answer rows; with an id the row waits for its label."""
        async with self.bodies.read(request) as body:
            rows, id, note = fields(parse(request, body), ("rows",), ("id", "note"))
            z = head.checked(rows)
            if id is not None:
                a_name(id, "id")
            snapshot, answer = await answered(head, z)
            said: dict[str, Any] = {
                "labels": answer.labels,
                "probabilities": answer.probabilities,
                "best": answer.best,
                "through": answer.through,
            }
            if snapshot.calibrated is not None:
                said["calibrated_through"] = snapshot.calibrated
            if id is not None and head.read_only:  # it goes on to answer, and says what it cannot
                said |= {"waiting": False, "why": head.read_only}
            elif id is not None:
                await asyncio.wrap_future(head.let_wait(z, answer, id, note))
                said["waiting"] = True
            return says(200, said)

    async def invocations(self, head: LiveHead, request: Request) -> Response:
        """Answer rows with their labels, asked as MLflow or as KServe's first protocol asks."""
        async with self.bodies.read(request) as body:
            found = parse(request, body)
            (rows,) = fields(found, ("instances",) if "instances" in found else ("inputs",))
            _, answer = await answered(head, head.checked(rows))
            return says(200, {"predictions": answer.labels, "through": answer.through})

    async def learn(self, head: LiveHead, request: Request) -> Response:
        """Learn rows, or the label of a row that waits."""
        async with self.bodies.read(request) as body:
            found = parse(request, body)
            if "id" in found:
                id, label = fields(found, ("id", "label"))
                return await _receipt(head.ask_label(id, label))
            rows, labels, name = fields(found, ("rows", "labels"), ("request",))
            return await _receipt(head.ask(LEARN, rows, labels, request=name))

    async def forget(self, head: LiveHead, request: Request) -> Response:
        """Forget rows, or drop a row that waits."""
        async with self.bodies.read(request) as body:
            found = parse(request, body)
            if "id" in found:
                (id,) = fields(found, ("id",))
                return await _receipt(head.ask_drop(id))
            rows, labels, name = fields(found, ("rows", "labels"), ("request",))
            return await _receipt(head.ask(FORGET, rows, labels, request=name))

    async def relabel(self, head: LiveHead, request: Request) -> Response:
        """Correct labels of rows that were learned."""
        async with self.bodies.read(request) as body:
            found = parse(request, body)
            rows, labels, to, name = fields(found, ("rows", "labels", "to"), ("request",))
            return await _receipt(head.ask(RELABEL, rows, labels, to, name))

    async def status(self, head: LiveHead, _: Request) -> Response:
        """Say how the head is."""
        return says(200, status_of(head))

    async def review(self, head: LiveHead, request: Request) -> Response:
        """List inputs that wait for a label, those first whose labels would tell the most."""
        count = request.query_params.get("count", "20")
        if not (count.isascii() and count.isdigit() and 0 < int(count[:6]) <= 1000):
            raise Refusal(400, "count must be from 1 to 1000")
        found = head.review(int(count))
        return says(200, {"waiting": len(head.writer.waitlist), "inputs": [
            {"id": one.id, "since": one.since, "note": one.note, **one.answer} for one in found
        ]})  # fmt: skip

    async def watch(self, head: LiveHead, _: Request) -> Response:
        """Say whether the head gets worse, its inputs are strange, or a class has moved."""
        report = await asyncio.to_thread(_watched(head).report)
        return says(200, {**status_of(head)["watch"], "report": report.document()})

    async def reset_watch(self, head: LiveHead, _: Request) -> Response:
        """Begin the watch anew: its promise is made once more."""
        await asyncio.to_thread(_watched(head).reset)
        return says(200, {"reset": True})

    async def state(self, head: LiveHead, _: Request) -> Response:
        """Give the head's file, through the last change."""
        if isinstance(head, Replica):  # its file is a part; merged with deltas it would count twice
            raise UnsupportedError(
                "a replica gives what it has learned as deltas: merge /delta with the head that it "
                "began with"
            )
        file = await asyncio.wrap_future(head.writer.order(lambda: _saved(head)))
        return _given(file)

    async def delta(self, head: LiveHead, _: Request) -> Response:
        """Give what was learned since the last delta, as a head: the same until acknowledged."""
        replica = _replica(head)
        found = await asyncio.wrap_future(head.writer.order(lambda: _frozen(replica)))
        if found is None:
            raise Refusal(404, "nothing was learned since the last delta")
        name, file = found
        return _given(file, {"x-delta": name})

    async def acknowledge(self, head: LiveHead, request: Request) -> Response:
        """Note that a delta has arrived, so that the next one can be frozen."""
        async with self.bodies.read(request) as body:
            (name,) = fields(parse(request, body), ("acknowledge",))
        replica = _replica(head)
        await asyncio.wrap_future(head.writer.order(lambda: replica.acknowledge(str(name))))
        return says(200, {"acknowledged": name})

    async def reload(self, head: LiveHead, request: Request) -> Response:
        """Take a merged head, and add what was learned since."""
        replica = _replica(head)
        async with self.bodies.saved(request, replica.folder, MOST_HEAD) as file:
            said = await asyncio.wrap_future(head.writer.order(lambda: replica.take(file)))
        await asyncio.to_thread(head.refresh)
        return says(200, said)


# In the writer's thread: a file is opened before it can be replaced or removed.


def _saved(head: LiveHead) -> BinaryIO:
    if not head.read_only:
        head.writer.checkpoint()
    return head.store.head.open("rb")


def _frozen(replica: Replica) -> tuple[str, BinaryIO] | None:
    found = replica.freeze()
    return None if found is None else (found[0], found[1].open("rb"))


def _given(file: BinaryIO, headers: Mapping[str, str] | None = None) -> Response:
    """Return an open file, as it was when it was opened."""

    async def parts() -> AsyncIterator[bytes]:
        with file:
            while part := await asyncio.to_thread(file.read, 1 << 20):
                yield part

    length = {"content-length": str(os.fstat(file.fileno()).st_size)}
    return StreamingResponse(parts(), 200, {**length, **(headers or {})}, BYTES)


def _replica(head: LiveHead) -> Replica:
    if not isinstance(head, Replica):
        raise UnsupportedError("this service is no replica: start it with --replica")
    return head


def _watched(head: LiveHead) -> Watched:
    if head.watched is None:
        raise UnsupportedError("this head is not watched: start the service with --false-alarms")
    return head.watched


async def health(_: Request) -> Response:
    """Say that the service is there."""
    return says(200, {"live": True})


async def _receipt(answer: "Future[dict[str, Any]]") -> Response:
    return says(200, await asyncio.wrap_future(answer))


def _bound(handler: Handler, head: LiveHead) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await handler(head, request)

    return handle
