"""The application by itself, asked without a server: what comes between two parts of an answer."""

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import lastlayer as ll
from conftest import made_up, save_head
from lastlayer.live import LiveHead, Replica, writer
from lastlayer.live.service import application as service_app
from lastlayer.live.service import bodies
from lastlayer.live.service.application import make_app

Z, Y = made_up(40, 1)


def ask(app: Any, method: str, path: str, parts: list[bytes], on_start: Any = None,
        stops: bool = False) -> Any:  # fmt: skip
    """Return the status, the headers and the body of an answer; do something when it begins."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "headers": headers,
             "query_string": b"", "http_version": "1.1", "scheme": "http"}  # fmt: skip
    coming = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    coming += [] if stops else [{"type": "http.request", "body": b""}]
    said: list[Any] = []

    async def receive() -> Any:
        return coming.pop(0) if coming else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        said.append(message)
        if message["type"] == "http.response.start" and on_start is not None:
            await asyncio.to_thread(on_start)

    asyncio.run(app(scope, receive, send))
    names = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], names, b"".join(one.get("body", b"") for one in said[1:])


def test_a_head_is_given_whole_while_it_is_replaced(tmp_path: Path) -> None:
    with LiveHead(save_head(tmp_path / "h.safetensors", "knn"), tmp_path / "live") as head:
        app = make_app({"h": head})

        def replace() -> None:
            head.learn(Z, Y)
            head.checkpoint()

        status, headers, body = ask(app, "GET", "/state", [], replace)
        assert (status, int(headers["content-length"])) == (200, len(body))
        (tmp_path / "state.safetensors").write_bytes(body)
        found = ll.HeadClassifier.load(tmp_path / "state.safetensors").head_
        assert found.records.get("change", 0) == 0


def test_a_delta_is_given_whole_while_it_is_taken(tmp_path: Path) -> None:
    clf = save_head(tmp_path / "h.safetensors")
    with Replica(clf, tmp_path / "live") as head:
        app = make_app({"h": head})
        head.learn(Z, Y)
        _, path = head.delta() or pytest.fail("no delta")
        whole = path.read_bytes()
        merged = tmp_path / "merged.safetensors"
        ll.merge(tmp_path / "h.safetensors", path).save(merged)
        status, _, body = ask(app, "GET", "/delta", [], lambda: head.reload(merged))
        assert (status, body) == (200, whole)
        assert not path.exists()


def test_a_large_head_is_taken_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clf = save_head(tmp_path / "h.safetensors")
    with Replica(clf, tmp_path / "live") as head:
        app = make_app({"h": head})
        body = (tmp_path / "h.safetensors").read_bytes()
        monkeypatch.setattr(bodies, "MOST_TOGETHER", len(body) - 1)  # of what is held in memory
        parts = [body[i : i + 1000] for i in range(0, len(body), 1000)]
        status, _, said = ask(app, "POST", "/reload", parts)
        assert status == 200, said
        status, _, said = ask(app, "POST", "/reload", parts[:-1])
        assert status == 422, said
        assert not list((tmp_path / "live").glob(".*"))


def test_a_client_that_stops_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveHead(save_head(tmp_path / "h.safetensors"), tmp_path / "live") as head:
        reads = bodies.Bodies(seconds=0.1)
        monkeypatch.setattr(service_app, "Bodies", lambda: reads)
        app = make_app({"h": head})
        status, headers, said = ask(app, "POST", "/learn", [b'{"rows": '], stops=True)
        assert (status, headers["connection"]) == (400, "close")
        assert b"the body must come within 0.1 seconds" in said
        assert (reads.held, head.change) == (0, 0)


def test_too_much_at_once_is_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LiveHead(save_head(tmp_path / "h.safetensors"), tmp_path / "live") as head:
        app = make_app({"h": head})
        body = json.dumps({"rows": Z[:1].tolist(), "labels": Y[:1]}).encode()
        monkeypatch.setattr(writer, "MOST_ENTRIES", 3)
        gate = threading.Event()
        head.writer.order(lambda: gate.wait(60))
        waiting = [head.ask("learn", Z[:1], Y[:1]) for _ in range(3)]
        status, headers, said = ask(app, "POST", "/learn", [body])
        assert (status, headers["retry-after"]) == (503, "1")
        assert b"too many changes are waiting" in said
        assert (
            ask(app, "POST", "/predict", [json.dumps({"rows": Z[:1].tolist()}).encode()])[0] == 200
        )
        gate.set()
        assert [one.result()["change"] for one in waiting] == [1, 2, 3]
        assert ask(app, "POST", "/learn", [body])[0] == 200


def test_a_mistake_says_nothing_of_the_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with LiveHead(save_head(tmp_path / "h.safetensors"), tmp_path / "live") as head:
        app = make_app({"h": head})

        def mistaken(rows: Any) -> None:
            raise RuntimeError(f"no idea what {rows} is")

        monkeypatch.setattr(head, "checked", mistaken)
        with caplog.at_level(logging.DEBUG):
            status, _, said = ask(
                app, "POST", "/predict", [json.dumps({"rows": "secret"}).encode()]
            )
        assert status == 500
        assert "mistaken" in caplog.text  # where it was
        assert "secret" not in caplog.text + said.decode()
        assert 'status="500"' in ask(app, "GET", "/metrics", [])[2].decode()
