"""The service as an ASGI application: its routes, its page, and who may use it."""

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from lastlayer.core.names import first_few
from lastlayer.core.version import __version__
from lastlayer.errors import LastLayerError
from lastlayer.live.live_head import LiveHead
from lastlayer.live.service.about import status_of
from lastlayer.live.service.bodies import Bodies
from lastlayer.live.service.guard import LOCAL, Guard
from lastlayer.live.service.infer import Inference
from lastlayer.live.service.metrics import Counted, Metrics
from lastlayer.live.service.refusal import Refusal, on_error, refused, says
from lastlayer.live.service.routes import Plain


class Page:
    """The page, and what it asks for again and again; ``login``: a token is needed."""

    def __init__(self, heads: Mapping[str, LiveHead], metrics: Metrics, login: bool) -> None:
        self._heads, self._metrics, self._login = heads, metrics, login
        self._html = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
        self._policy = _policy(self._html)

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [Route("/", self.html), Route("/live", self.state)]

    async def html(self, _: Request) -> Response:
        """Give the page itself, which says nothing of any head."""
        headers = {
            "content-security-policy": self._policy,
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store",
        }
        return Response(self._html, headers=headers, media_type="text/html")

    async def state(self, _: Request) -> Response:
        """Give all that the page shows."""
        heads: dict[str, Any] = {}
        for name, head in self._heads.items():
            inputs = [{"id": one.id, "since": one.since, "note": one.note, **one.answer}
                      for one in head.review(10)]  # fmt: skip
            heads[name] = status_of(head) | {"review": inputs}
        about = {"version": __version__, "login": self._login, **self._metrics.totals()}
        return says(200, {**about, "heads": heads})


def _policy(html: str) -> str:
    """Return the rules for a page: its own style and script, and nobody else's."""
    found = {}
    for kind in ("style", "script"):
        (text,) = re.findall(f"<{kind}>(.*?)</{kind}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        found[kind] = f"{kind}-src 'sha256-{digest}'"
    return (
        f"default-src 'none'; {found['style']}; {found['script']}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


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
        HTTPException: _of_starlette(heads), Refusal: on_error, LastLayerError: on_error,
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


def _of_starlette(heads: Iterable[str]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Answer what has no route, or not by this method."""
    paths = [f"/{name}/…" for name in heads]
    several = f": several heads are served: {first_few(paths, 5)}" if len(paths) > 1 else ""

    async def answer(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        allowed = (error.headers or {}).get("Allow", "").split(", ")
        use = " or ".join(sorted(method for method in allowed if method != "HEAD"))
        sentence = {404: f"there is nothing here{several}", 405: f"use {use}"}
        said = sentence.get(error.status_code, error.detail)
        return refused(Refusal(error.status_code, said, error.headers))

    return answer
