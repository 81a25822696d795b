"""HTTP as uvicorn speaks it, with what it lacks: time limits, and a bound on idlers.

uvicorn sets no timer on a connection before its first request, so a thousand of them that say
nothing would stay for ever, as would one that never reads its answer.
"""

import asyncio
import json
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0  # for a complete header, from the connection or the header's first byte
UNREAD_SECONDS = 30.0  # for a part of an answer to be read
MOST_CONNECTIONS = 512  # beyond them, who has been silent longest must go


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
