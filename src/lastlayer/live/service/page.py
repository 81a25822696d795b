"""The page of the service: one file, nothing from elsewhere, always as the heads are."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lastlayer.core.version import __version__
from lastlayer.live.live_head import LiveHead
from lastlayer.live.service.about import status_of
from lastlayer.live.service.metrics import Metrics
from lastlayer.live.service.refusal import says


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
