"""The application: all that the service answers, behind its guard and its counters."""

from collections.abc import Iterable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lastlayer.errors import LastLayerError
from lastlayer.live.live_head import LiveHead
from lastlayer.live.service.bodies import Bodies
from lastlayer.live.service.guard import LOCAL, Guard
from lastlayer.live.service.infer import Inference
from lastlayer.live.service.metrics import Counted, Metrics
from lastlayer.live.service.page import Page
from lastlayer.live.service.refusal import Refusal, on_error, refused
from lastlayer.live.service.routes import Plain


def make_app(
    heads: Mapping[str, LiveHead],
    tokens: Mapping[str, str] | None = None,
    hosts: Iterable[str] = LOCAL,
) -> ASGIApp:
    """Return the application that serves live heads under their names.

    There are tokens to "read" and to "change", or whoever reaches it may do both. It may be called
    by the names of ``hosts``.
    """
    bodies, metrics = Bodies(), Metrics(heads)
    inner = Starlette(exception_handlers={
        HTTPException: _of_starlette, Refusal: on_error, LastLayerError: on_error,
        MemoryError: on_error, Exception: on_error,
    })  # fmt: skip
    guard = Guard(inner, tokens or {}, hosts)
    page = Page(heads, metrics, bool(tokens))
    inner.router.routes += [
        *page.routes(),
        Route("/metrics", metrics.__call__),
        Route("/login", guard.login, methods=["POST"]),
        *Inference(heads, bodies).routes(),
        *Plain(heads, bodies).routes(),
    ]
    return Counted(guard, metrics)


async def _of_starlette(_: Request, error: Exception) -> Response:
    """Answer what has no route, or not by this method."""
    assert isinstance(error, HTTPException)
    sentence = {404: "there is nothing here", 405: "not by this method"}
    said = sentence.get(error.status_code, error.detail)
    return refused(Refusal(error.status_code, said, error.headers))
