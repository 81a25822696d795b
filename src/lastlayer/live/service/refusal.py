"""What the service says no with: a status and one sentence of JSON, never a traceback."""

import json
import logging
import traceback
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lastlayer.core.names import printable
from lastlayer.errors import (
    BusyError,
    LastLayerError,
    MergeError,
    NotCalibratedError,
    NotLearnedError,
    NotWaitingError,
    TakenError,
    UnavailableError,
    UnsupportedError,
    WriteError,
)

log = logging.getLogger("lastlayer.live")
AGAIN = {"retry-after": "1"}
CLOSE = {"connection": "close"}
# Looked at from the top; other errors of ours are values that cannot be learned: 422.
STATUS: tuple[tuple[tuple[type[Exception], ...], int, Mapping[str, str]], ...] = (
    ((NotWaitingError,), 404, {}),
    ((TakenError, UnsupportedError, NotLearnedError, NotCalibratedError, MergeError), 409, {}),
    ((UnavailableError, WriteError, BusyError, MemoryError), 503, AGAIN),
    ((LastLayerError,), 422, {}),
)


class Refusal(Exception):  # noqa: N818  (it is an answer)
    """A request that is refused before a head has seen it."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.headers = status, dict(headers or {})


def refused(error: Exception) -> Response:
    """Return the answer for an error."""
    if isinstance(error, Refusal):
        return says(error.status, {"error": _sentence(error)}, error.headers)
    for kinds, status, headers in STATUS:
        if isinstance(error, kinds):
            return says(status, {"error": _sentence(error)}, headers)
    # Without its words, which may be those of a body.
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("a mistake in the service, %s:\n%s", type(error).__name__, where)
    return says(500, {"error": "a mistake in the service: its log says which"})


async def on_error(_: Request, error: Exception) -> Response:
    """Return the answer for an error, as Starlette asks for it."""
    return refused(error)


def says(status: int, content: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON."""
    body = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(body.encode(), status, dict(headers or {}), "application/json")


def _sentence(error: Exception) -> str:
    return printable(" ".join(str(error).split()) or type(error).__name__)[:1000]
