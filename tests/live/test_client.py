"""The client: it names its changes, and asks again by name when the service does not answer."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

from lastlayer.errors import DataError, NotWaitingError, TakenError, UnavailableError
from lastlayer.live import Client

Said = tuple[int, dict[str, Any]] | None  # None: the connection is closed without a word


class Service:
    """Says what it was told to, in turn, and notes what it was asked."""

    def __init__(self) -> None:
        self.says: list[Said] = []
        self.asked: list[tuple[str, Any, str | None]] = []
        handler = type("Handler", (_Handler,), {"service": self})
        self.server = HTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    service: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.service.asked.append((self.path, body, self.headers["authorization"]))
        said = self.service.says.pop(0)
        if said is None:
            self.close_connection = True
            return
        content = json.dumps(said[1]).encode()
        self.send_response(said[0])
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    yield found
    found.close()


def test_a_change_is_asked_again_by_its_name(service: Service) -> None:
    receipt = {"change": 1, "rows": 1, "fresh_through": 0}
    service.says = [None, (503, {"error": "not now"}), (200, receipt), (200, receipt)]
    client = Client(service.url, "birds", token="0123456789abcdef")
    assert client.learn(np.ones((1, 2)), np.array(["owl"])) == receipt
    first, *more = service.asked
    assert more == [first, first]
    path, body, token = first
    assert (path, token) == ("/birds/learn", "Bearer 0123456789abcdef")
    assert (body["rows"], body["labels"]) == ([[1.0, 1.0]], ["owl"])
    client.forget([[1.0, 1.0]], ["owl"])
    assert service.asked[-1][1]["request"] not in ("", body["request"])
    client.close()


def test_without_patience_it_asks_once(service: Service) -> None:
    service.says = [(503, {"error": "the store is read-only"})]
    client = Client(service.url, patience=0)
    with pytest.raises(UnavailableError, match="read-only"):
        client.learn([[1.0]], ["owl"])
    assert len(service.asked) == 1
    client.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, NotWaitingError), (409, TakenError), (422, DataError), (401, DataError)],
)
def test_a_refusal_is_an_error_of_ours(
    service: Service, status: int, error: type[Exception]
) -> None:
    service.says = [(status, {"error": "no, since it cannot be"})]
    client = Client(service.url)
    with pytest.raises(error, match="since it cannot be"):
        client.label("a17", "owl")
    assert len(service.asked) == 1
    client.close()
