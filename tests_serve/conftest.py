"""A service in a process of its own, begun with a small head, and what to ask it with."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lastlayer as ll

ROOT = Path(__file__).parents[1]
PATIENCE = 120  # seconds; only a service that hangs needs them


def made_up(n: int, seed: int = 0, width: int = 5) -> tuple[np.ndarray, list[str]]:
    random = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return random.normal(size=(n, width)) + 3 * y[:, None], [f"c{c}" for c in y]


class Service:
    """A service that was started, and its address."""

    def __init__(self, process: subprocess.Popen[str], url: str, said: list[str]) -> None:
        self.process, self.url, self.said = process, url, said
        self.port = int(url.rsplit(":", 1)[1])
        self._rest = threading.Thread(target=said.extend, args=(process.stdout,))
        self._rest.start()

    def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        status, content, _ = self.raw(path, body, headers)
        return status, json.loads(content)

    def raw(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if data is None else {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data, {**kind, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self.kill()
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._rest.join()  # it has read what was said to the end
        assert self.process.stdout is not None
        self.process.stdout.close()


def start(*arguments: object) -> Service:
    """Run ``lastlayer serve`` on any port, and wait until it listens."""
    command = [sys.executable, "-m", "lastlayer", "serve", *map(str, arguments), "--port", "0"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if found := re.match(r"listening on (http://\S+)", line):
            return Service(process, found[1], said)
    process.wait()
    process.stdout.close()
    raise AssertionError("".join(said))


@contextmanager
def running(*arguments: object) -> Iterator[Service]:
    service = start(*arguments)
    try:
        yield service
    finally:
        service.kill()


def save_head(path: Path, head: str = "slda", **options: Any) -> ll.HeadClassifier:
    made = ll.HeadClassifier(head, options=options or None, random_state=0, calibration=0.3)
    clf = made.fit(*made_up(240, 9))
    clf.save(path)
    return clf


def wait_for(true: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Serve one head for the tests of a file."""
    folder = tmp_path_factory.mktemp("service")
    save_head(folder / "birds.safetensors")
    with running(folder / "birds.safetensors", "--store", folder / "live", "--fresh", "0") as found:
        yield found
        assert found.stop() == 0
        assert not any("Traceback" in line for line in found.said), "".join(found.said)
