"""A small client of ``lastlayer serve``; it asks again by the names of its requests."""

import http.client
import json
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import ArrayLike

from lastlayer.core.checks import expect, real
from lastlayer.errors import (
    DataError,
    LastLayerError,
    NotWaitingError,
    OptionError,
    TakenError,
    UnavailableError,
)

ERRORS: Mapping[int, type[LastLayerError]] = {  # of others: DataError
    404: NotWaitingError,
    409: TakenError,
    503: UnavailableError,
}
_GONE = (http.client.HTTPException, OSError)


class Client:
    """Asks a service; any number of threads may use one.

    A change is named if you do not name it, and asked again by its name when the service does not
    answer: so it is made once, however often it had to be asked, for ``patience`` seconds (0: once
    only). A service may have several heads, of which one is named, and need a token to read or to
    change.

    >>> Client("localhost:8000")
    Traceback (most recent call last):
    ...
    lastlayer.errors.OptionError: url must be http://HOST:PORT or https://HOST, got localhost:8000
    """

    def __init__(
        self,
        url: str,
        head: str | None = None,
        *,
        token: str | None = None,
        patience: float = 30.0,
        timeout: float = 60.0,
    ) -> None:
        expect(url, str, "url", "the address of a service")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"url must be http://HOST:PORT or https://HOST, got {url}")
        self._place, self._secure = parts.netloc.rpartition("@")[2], parts.scheme == "https"
        self._path = parts.path.rstrip("/") + (f"/{quote(head)}" if head else "")
        self._patience, self._timeout = real(patience, "patience"), real(timeout, "timeout")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._local = threading.local()

    def predict(
        self, rows: ArrayLike, id: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Return what the head says of rows (n, h); with an id the one row waits for its label."""
        body = {"rows": _listed(rows), "id": id, "note": note}
        return self._ask("POST", "predict", {k: v for k, v in body.items() if v is not None})

    def learn(
        self, rows: ArrayLike, labels: Sequence[Any], request: str | None = None
    ) -> dict[str, Any]:
        """Learn rows; when it returns they are on the service's disk."""
        return self._change("learn", request, rows=rows, labels=labels)

    def label(self, id: str, label: Any) -> dict[str, Any]:
        """Learn the label of a row that was predicted under an id."""
        return self._ask("POST", "learn", {"id": id, "label": label})

    def forget(
        self, rows: ArrayLike, labels: Sequence[Any], request: str | None = None
    ) -> dict[str, Any]:
        """Forget rows; when it returns they are erased from the service's store."""
        return self._change("forget", request, rows=rows, labels=labels)

    def drop(self, id: str) -> dict[str, Any]:
        """Drop a row that waits for its label."""
        return self._ask("POST", "forget", {"id": id})

    def relabel(
        self, rows: ArrayLike, labels: Sequence[Any], to: Sequence[Any], request: str | None = None
    ) -> dict[str, Any]:
        """Correct the labels of rows that were learned."""
        return self._change("relabel", request, rows=rows, labels=labels, to=to)

    def review(self, count: int = 20) -> list[dict[str, Any]]:
        """Return inputs that wait for a label, those first whose labels would tell the most."""
        found: list[dict[str, Any]] = self._ask("GET", f"review?count={count}")["inputs"]
        return found

    def status(self) -> dict[str, Any]:
        """Return how the head is."""
        return self._ask("GET", "status")

    def watch(self) -> dict[str, Any]:
        """Return what the watch of the head says: ``questions``, and the whole ``report``."""
        return self._ask("GET", "watch")

    def close(self) -> None:
        """Close this thread's connection."""
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def _change(self, verb: str, request: str | None, **values: Any) -> dict[str, Any]:
        body = {name: _listed(value) for name, value in values.items()}
        return self._ask("POST", verb, {**body, "request": request or secrets.token_hex(16)})

    def _ask(self, method: str, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask until there is an answer, or no more patience."""
        end, pause = time.monotonic() + self._patience, 0.05
        while True:
            try:
                return self._once(method, f"{self._path}/{verb}", body)
            except UnavailableError:
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {**self._headers, **({"content-type": "application/json"} if content else {})}
        try:
            connection = self._connected()
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except (*_GONE, ValueError) as error:
            self.close()
            raise UnavailableError(f"{self._place} does not answer: {error}") from error
        if answer.status == 200:
            return dict(said)
        kind = ERRORS.get(answer.status, DataError)
        raise kind(said.get("error", f"status {answer.status}"))

    def _connected(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            connection = self._local.connection = kind(self._place, timeout=self._timeout)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _listed(values: Any) -> Any:
    """Return plain lists of what may be an array or a tensor."""
    if hasattr(values, "tolist"):
        return np.asarray(values).tolist()
    return [_listed(value) if hasattr(value, "tolist") else value for value in values]
