"""Clients that are slow, huge, silent, or speak no HTTP: the service goes on, and says no."""

import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from conftest import PATIENCE, Service, made_up, running, save_head, wait_for
from lastlayer.live.service import server

Z, Y = made_up(40, 1)
HEADER = "POST /learn HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def line(service: Service) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", service.port), PATIENCE) as made:
        yield made


def everything(line: socket.socket) -> bytes:
    content = b""
    while part := line.recv(65536):
        content += part
    return content


def test_ten_gigabytes_are_refused_at_once(service: Service, line: socket.socket) -> None:
    line.sendall((HEADER + "Content-Length: 10000000000\r\n\r\n").encode() + b"[" * 1000)
    answer = everything(line)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"a body may have at most" in answer
    assert service.ask("/health")[0] == 200


def test_bytes_are_counted_as_they_come(service: Service, line: socket.socket) -> None:
    line.sendall((HEADER + "Transfer-Encoding: chunked\r\n\r\n").encode())
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    sent = 0
    try:
        for _ in range(200):
            line.sendall(piece)
            sent += 1
    except OSError:
        pass  # it has closed the connection
    assert sent < 200
    assert service.ask("/health")[0] == 200


def test_a_client_that_goes_in_the_middle(service: Service, line: socket.socket) -> None:
    change = service.ask("/status")[1]["change"]
    body = json.dumps({"rows": Z[:1].tolist(), "labels": Y[:1]}).encode()
    line.sendall((HEADER + f"Content-Length: {len(body)}\r\n\r\n").encode() + body[:-5])
    line.close()
    assert service.ask("/predict", {"rows": Z[:1].tolist()})[0] == 200
    assert service.ask("/status")[1]["change"] == change


@pytest.mark.parametrize(
    "words",
    [b"hello\r\n\r\n", b"\x16\x03\x01\x00\xff" * 50,
     b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
     b"GET /" + b"a" * 100_000, b"POST /learn HTTP/1.1\r\nContent-Length: x\r\n\r\n",
     b"GET / HTTP/1.1\r\nNo: host\r\n\r\n", b"\x00" * 20_000],
)  # fmt: skip
def test_what_is_no_http(service: Service, line: socket.socket, words: bytes) -> None:
    line.sendall(words)
    answer = everything(line)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert service.ask("/health")[0] == 200


def test_chunks_that_are_none(service: Service) -> None:
    for path in ("/learn", "/nothing"):  # the second has its answer before the body is there
        with socket.create_connection(("127.0.0.1", service.port), PATIENCE) as line:
            header = HEADER.replace("/learn", path) + "Transfer-Encoding: chunked\r\n\r\n"
            line.sendall(header.encode() + b"zz\r\n" * 10)
            assert everything(line).startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
    assert service.ask("/health")[0] == 200


def test_a_client_that_never_reads_its_answers(service: Service) -> None:
    ask = HEADER.replace("POST /learn", "GET /").encode() + b"Content-Length: 0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as line:
        line.settimeout(1)
        with suppress(OSError):  # nobody takes any more
            while True:
                line.sendall(ask * 100)
        wait_for(lambda: _is_gone(line))
    assert service.ask("/health")[0] == 200


def _is_gone(line: socket.socket) -> bool:
    try:
        return line.send(b"x") < 0
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_thousand_who_say_nothing(service: Service) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as open_:
        lines = [open_.enter_context(socket.create_connection(("127.0.0.1", service.port)))
                 for _ in range(1000)]  # fmt: skip
        for line in lines[:50]:
            line.sendall(b"GET /heal")  # or half a header
        for _ in range(20):
            assert service.ask("/predict", {"rows": Z[:1].tolist()})[0] == 200
        held = len(os.listdir(f"/proc/{service.process.pid}/fd"))
        assert held < server.MOST_CONNECTIONS + 100
        wait_for(lambda: len(os.listdir(f"/proc/{service.process.pid}/fd")) < 100)


def test_many_who_come_at_once_are_all_answered(tmp_path: Path) -> None:
    save_head(tmp_path / "h.safetensors")
    body = {"rows": Z[:1].tolist(), "labels": Y[:1]}
    with running(tmp_path / "h.safetensors", "--store", tmp_path / "live") as service:
        service.process.send_signal(signal.SIGSTOP)
        found: list[int] = []
        ask = lambda: found.append(service.ask("/learn", body)[0])  # noqa: E731
        threads = [threading.Thread(target=ask) for _ in range(50)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        service.process.send_signal(signal.SIGCONT)
        for thread in threads:
            thread.join()
        assert set(found) == {200}
        assert service.ask("/status")[1]["change"] == 50


def test_a_full_disk(tmp_path: Path) -> None:
    save_head(tmp_path / "h.safetensors")
    options = [tmp_path / "h.safetensors", "--store", tmp_path / "live", "--fresh", "0"]
    learn = {"rows": Z.tolist(), "labels": Y, "request": "r1"}
    with running(*options) as service:
        assert service.ask("/learn", learn)[0] == 200
        before = service.ask("/predict", {"rows": Z.tolist()})[1]
        # No file of the process may grow beyond what the journal has.
        journal = tmp_path / "live" / "h" / "journal.sqlite-wal"
        full = (journal.stat().st_size, resource.RLIM_INFINITY)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, full)
        status, said = service.ask("/learn", {**learn, "request": "r2"})
        assert status == 503, said
        assert "read-only" in said["error"]
        answer = service.ask("/predict", {"rows": Z.tolist()})[1]
        assert answer["labels"] == before["labels"]
        status, said = service.ask("/predict", {"rows": Z[:1].tolist(), "id": "a"})
        assert (status, said["waiting"]) == (200, False)
        assert "read-only" in said["why"]
        status, _, headers = service.raw("/learn", {**learn, "request": "r3"})
        assert (status, headers["retry-after"]) == (503, "1")
        assert b'lastlayer_read_only{head="h"} 1.0' in service.raw("/metrics")[1]
        assert service.stop() == 0
    with running(*options) as service:  # with room again
        assert service.ask("/status")[1]["change"] == 1
        assert service.ask("/learn", {**learn, "request": "r2"})[1]["change"] == 2
