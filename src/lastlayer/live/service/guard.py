"""Who may ask what: Host and Origin, tokens for reading and for changing, the page's cookie.

Without tokens the service listens to this machine only; then a page of another site, or a name that
was made to point here, must not reach it either.
"""

import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lastlayer.core.files import reading
from lastlayer.errors import OptionError
from lastlayer.live.service.bodies import Bodies, fields, parse_json
from lastlayer.live.service.refusal import Refusal, refused, says

HEALTH = ("/health", "/ping", "/v2/health/live", "/v2/health/ready")  # probes ask by address
OPEN = (*HEALTH, "/login", "/")
CHANGING = ("learn", "forget", "relabel", "delta", "reload", "reset")
COOKIE = "lastlayer"
READ, CHANGE = "read", "change"
LOCAL = ("localhost", "127.0.0.1", "[::1]")
SHORTEST = 16  # characters of a token
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(:\d{1,5})?", re.ASCII)


def read_tokens(path: Path) -> dict[str, str]:
    """Return the tokens of a file with a line each, ``read TOKEN`` and ``change TOKEN``."""
    with reading(path, "a file of tokens") as place:
        lines = [line.split() for line in place.read_text("utf-8").splitlines() if line.strip()]
    if not all(len(line) == 2 and line[0] in (READ, CHANGE) for line in lines):
        raise OptionError(f"{path} must have lines 'read TOKEN' and 'change TOKEN'")
    tokens = dict(lines)
    if set(tokens) != {READ, CHANGE} or len(lines) != 2 or len(set(tokens.values())) != 2:
        raise OptionError(f"{path} must have one token to read and another one to change")
    if min(map(len, tokens.values())) < SHORTEST or not "".join(tokens.values()).isascii():
        raise OptionError(f"a token in {path} must have at least {SHORTEST} characters of ASCII")
    return tokens


class Guard:
    """Middleware that lets through what may be asked, by one of the names of ``hosts``.

    ``tokens`` are by role; without any, whoever reaches the service may do everything.
    """

    def __init__(self, app: ASGIApp, tokens: Mapping[str, str], hosts: Iterable[str]) -> None:
        self._app, self._tokens, self._hosts = app, dict(tokens), {h.lower() for h in hosts}
        self._secret = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a refusal, or let the request through."""
        if scope["type"] == "http":
            try:
                self._check(Headers(scope=scope), scope["path"])
            except Refusal as refusal:
                await refused(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Headers, path: str) -> None:
        if path in HEALTH:
            return
        host = headers.get("host", "").lower()
        found = _HOST.fullmatch(host)
        if found is None or found[1] not in self._hosts:
            raise Refusal(400, "the Host is not one of this service (--host-name)")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refusal(400, "a page of another Origin may not ask this service")
        if not self._tokens or path in OPEN:
            return
        role = CHANGE if path.rsplit("/", 1)[-1] in CHANGING else READ
        if not (self._bears(headers, role) or self._is_logged_in(headers, role)):
            what = {"www-authenticate": "Bearer"}
            raise Refusal(401, f"a token to {role} is needed: Authorization: Bearer …", what)

    def _bears(self, headers: Headers, role: str) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self._role(given.strip()) in (role, CHANGE)

    def _role(self, given: str) -> str | None:
        """Return what a token lets one do; every token is compared, in constant time."""
        found = None
        for role, token in self._tokens.items():
            if hmac.compare_digest(token.encode(), given.encode("utf-8", "replace")):
                found = role
        return found

    def _is_logged_in(self, headers: Headers, role: str) -> bool:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        given = cookies[COOKIE].value if COOKIE in cookies else ""
        return any(
            hmac.compare_digest(self._cookie(r).encode(), given.encode("utf-8", "replace"))
            for r in (role, CHANGE)
        )

    def _cookie(self, role: str) -> str:
        return hmac.new(self._secret, role.encode(), sha256).hexdigest()

    async def login(self, request: Request) -> Response:
        """Give the page a cookie for a token."""
        async with Bodies(most=10_000).read(request) as body:
            (token,) = fields(parse_json(body), ("token",))
        role = self._role(token) if isinstance(token, str) else None
        if role is None:
            raise Refusal(401, "this is no token of this service")
        answer = says(200, {"role": role})
        secure = request.headers.get("x-forwarded-proto") == "https"
        answer.set_cookie(
            COOKIE, self._cookie(role), httponly=True, samesite="strict", secure=secure
        )
        return answer
