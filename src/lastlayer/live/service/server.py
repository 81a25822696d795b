"""Runs the service: one process, which ends in order when it is told to.

It speaks HTTP as uvicorn does, with what that lacks: time limits, and a bound on idlers. uvicorn
sets no timer on a connection before its first request, so a thousand of them that say nothing
would stay for ever, as would one that never reads its answer.
"""

import asyncio
import contextlib
import json
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from lastlayer.core.files import say
from lastlayer.errors import OptionError
from lastlayer.live.live_head import LiveHead

KEEP_ALIVE = 75  # seconds for which a connection may wait for its next request
GRACE = 20  # seconds for what is in flight when the service is told to end
HEADER_BYTES = 16 << 10
BACKLOG = 1024
HEADER_SECONDS = 10.0  # for a complete header, from the connection or the header's first byte
UNREAD_SECONDS = 30.0  # for a part of an answer to be read
MOST_CONNECTIONS = 512  # beyond them, who has been silent longest must go


class Server(uvicorn.Server):
    """uvicorn's, but a signal that ends it is its own business: uvicorn raises it once more."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Note SIGINT and SIGTERM, to end in order."""
        stops = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in stops}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 is any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OptionError(f"cannot listen on {host} port {port}: {say(error)}") from error
    # Connections inherit it. asyncio sets it for sockets that name their protocol only; without it
    # an answer waits 40 ms for the client to acknowledge its header.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def serve(
    app: ASGIApp, heads: Mapping[str, LiveHead], place: socket.socket, ready: Callable[[], None]
) -> None:
    """Answer until SIGTERM or SIGINT; then answer what is in flight, and write checkpoints."""
    sys.setswitchinterval(0.001)  # answers need not wait for others' Python as long as usual
    _allow_many_files()
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app, http=Patient, ws="none", lifespan="off", access_log=False, log_config=None,
        server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE, h11_max_incomplete_event_size=HEADER_BYTES,
    )  # fmt: skip
    with contextlib.ExitStack() as ending:
        for head in heads.values():
            ending.callback(head.close)
        ready()
        Server(config).run(sockets=[place])


def _allow_many_files() -> None:
    """Use as many open files as the system lets us: connections are files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Patient(H11Protocol):
    """A connection whose header must come in time, and whose answers must be read."""

    silent: ClassVar[dict["Patient", None]] = {}  # without a request under way, longest first
    seconds: ClassVar[float] = HEADER_SECONDS
    unread: ClassVar[float] = UNREAD_SECONDS
    most: ClassVar[int] = MOST_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None  # for a header
        self._reading: asyncio.TimerHandle | None = None  # for an answer

    def connection_made(self, transport: Any) -> None:
        """Give the first header its time; make room where there are too many."""
        super().connection_made(transport)
        self._await_header()
        self.silent[self] = None
        if len(self.connections) > self.most:
            longest = next(iter(self.silent))
            del self.silent[longest]  # it is told to go; the next one too many takes another
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        if self._reading is not None:
            self._reading.cancel()
        self.silent.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Give a further header its time, from its first byte."""
        if self.cycle is None or self.cycle.response_complete:
            self._await_header()
        super().data_received(data)

    def handle_events(self) -> None:
        """Stop the clock when a header is complete."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop()
            self.silent.pop(self, None)

    def on_response_complete(self) -> None:
        """Count among the silent again."""
        if not self.transport.is_closing():
            self.silent[self] = None
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Give who does not read an answer its time."""
        super().pause_writing()
        self._reading = self.loop.call_later(self.unread, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the clock when it was read."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as everything is refused: with one sentence of JSON."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the request was no HTTP: nobody else answers it
            self.cycle.message_event.set()
        body = json.dumps({"error": msg}).encode()
        headers = [("content-type", "application/json"), ("connection", "close"),
                   ("content-length", str(len(body)))]  # fmt: skip
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body),
                      h11.EndOfMessage()):  # fmt: skip
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_header(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
