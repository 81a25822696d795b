"""The service beside a bare echo of the same bodies, and beside what one would write instead.

python -m benchmarks.serve predict [--requests 2000]   single rows, 768 features, 100 classes
python -m benchmarks.serve learn   [--requests 300]    1 and 100 rows a request, on the disk
python -m benchmarks.serve loop    [--rows 1000] [--head NAME]  predicted, then learned, no server
python -m benchmarks.serve start   [--rows 100000]     with a journal of so many rows
python -m benchmarks.serve memory  [--requests 100000] [--inside]  after a tenth, and after all

The echo is Starlette on uvicorn; the other is FastAPI with scikit-learn's partial_fit, which writes
a joblib file after every request that it learns from. Clients share the machine with the service.
Needs: pip install -e '.[serve]' fastapi
"""

# ruff: noqa: PLC0415  (each command imports what it compares, and no more)

import argparse
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lastlayer.live import LiveHead

H, CLASSES = 768, 100


def rows(n: int, h: int = H, classes: int = CLASSES, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    random = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, h))
    return centres[y] + random.normal(size=(n, h)), [f"c{c}" for c in y]


def ours(folder: Path) -> list[str]:
    import lastlayer as ll

    ll.HeadClassifier("slda").fit(*rows(4000)).save(folder / "h.safetensors")
    serve = ["-m", "lastlayer", "serve", str(folder / "h.safetensors")]
    return [*serve, "--store", str(folder / "live"), "--port", "0"]


def other(name: str) -> Callable[[Path], list[str]]:
    return lambda folder: ["-m", "benchmarks.serve", name, "--folder", str(folder)]


def run_echo(_: Path) -> object:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def echo(request: Request) -> Response:
        return Response(await request.body(), media_type="application/json")

    return Starlette(routes=[Route(f"/{verb}", echo, methods=["POST"]) for verb in VERBS])


def run_rival(folder: Path) -> object:
    import joblib
    from fastapi import FastAPI
    from pydantic import BaseModel
    from sklearn.linear_model import SGDClassifier

    app, lock, file = FastAPI(), threading.Lock(), folder / "model.joblib"
    z, y = rows(4000)
    model = SGDClassifier(loss="log_loss").fit(z, y)

    class Body(BaseModel):
        rows: list[list[float]]
        labels: list[str] = []

    def predict(body: Body) -> dict[str, object]:
        probable = model.predict_proba(np.array(body.rows))
        return {"labels": model.classes_[probable.argmax(1)].tolist(),
                "probabilities": probable.max(1).tolist()}  # fmt: skip

    def learn(body: Body) -> dict[str, object]:
        with lock:
            model.partial_fit(np.array(body.rows), body.labels)
            joblib.dump(model, file)
        return {"rows": len(body.rows)}

    app.post("/predict")(predict)
    app.post("/learn")(learn)
    return app


VERBS = ("predict", "learn")
OTHERS = {"echo": run_echo, "rival": run_rival}
NAMES = {"ours": "lastlayer serve", "echo": "bare echo", "rival": "FastAPI + partial_fit + joblib"}


@contextmanager
def serving(name: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    with tempfile.TemporaryDirectory() as folder:
        command = (ours if name == "ours" else other(name))(Path(folder))
        process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        port = next(int(line.rsplit(":", 1)[1]) for line in process.stdout if "http://" in line)
        try:
            yield port, process
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def ask(line: http.client.HTTPConnection, verb: str, body: bytes) -> None:
    line.request("POST", f"/{verb}", body, {"content-type": "application/json"})
    answer = line.getresponse()
    content = answer.read()
    assert answer.status == 200, content


def connected(port: int) -> http.client.HTTPConnection:
    """Return a line to a service, which may have to begin yet, that sends at once what it has."""
    while True:
        line = http.client.HTTPConnection("127.0.0.1", port)
        try:
            line.connect()
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return line


def times(port: int, verb: str, bodies: list[bytes], clients: int, requests: int) -> np.ndarray:
    """Return the seconds of each request, asked by so many clients at once."""
    found: list[float] = []

    def client(number: int) -> None:
        line = connected(port)
        for place in range(number, requests, clients):
            begin = time.perf_counter()
            ask(line, verb, bodies[place % len(bodies)])
            found.append(time.perf_counter() - begin)
        line.close()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return np.array(found)


def cpu_of(process: subprocess.Popen[str]) -> float:
    """Return the seconds of processor time that a service has taken: others' work adds none."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def predict(requests: int) -> None:
    z, _ = rows(200, seed=1)
    bodies = [json.dumps({"rows": [row]}).encode() for row in z.tolist()]
    print(f"{'single-row predictions':32} clients  p50 ms  p99 ms  a second  CPU ms each")
    for name in ("ours", "echo", "rival"):
        with serving(name) as (port, process):
            times(port, "predict", bodies, 1, 200)
            for clients in (1, 8):
                begin, work = time.perf_counter(), cpu_of(process)
                took = 1e3 * times(port, "predict", bodies, clients, requests)
                rate = requests / (time.perf_counter() - begin)
                cpu = 1e3 * (cpu_of(process) - work) / requests
                middle, high = np.percentile(took, [50, 99])
                found = f"{middle:7.2f} {high:7.2f} {rate:9.0f} {cpu:12.2f}"
                print(f"{NAMES[name]:32} {clients:7} {found}")


def learn(requests: int) -> None:
    z, y = rows(2000, seed=2)
    titles = "rows a request  clients  rows a second  CPU ms a row"
    print(f"{'learned rows a second':32} {titles}")
    for name in ("ours", "rival"):
        with serving(name) as (port, process):
            for each in (1, 100):
                pieces = range(0, len(z), each)
                bodies = [json.dumps({"rows": z[i : i + each].tolist(), "labels": y[i : i + each]})
                          .encode() for i in pieces]  # fmt: skip
                for clients in (1, 8):
                    begin, work = time.perf_counter(), cpu_of(process)
                    times(port, "learn", bodies, clients, requests)
                    rate = requests * each / (time.perf_counter() - begin)
                    cpu = 1e3 * (cpu_of(process) - work) / requests / each
                    print(f"{NAMES[name]:32} {each:14} {clients:8} {rate:14.0f} {cpu:13.3f}")


def loop(n: int, head: str | None) -> None:
    """Predict a row and then learn it, one after the other: 384 features, 150 classes."""
    import lastlayer as ll
    from lastlayer.live import LiveHead

    z, y = rows(4500, 384, 150)
    new, labels = rows(n, 384, 150, seed=1)
    titles = "in a store  rows a second  CPU ms a row  solving ms  behind at the end"
    print(f"{'predicted, then learned':24} {titles}")
    for name in (head,) if head else ("mean", "slda", "random_slda", "random_ridge"):
        clf = ll.HeadClassifier(name, random_state=0).fit(z, y)
        for store in (False, True):
            with (tempfile.TemporaryDirectory() as folder,
                  LiveHead(clf, Path(folder) / "live" if store else None) as live):  # fmt: skip
                solved = solving(live)
                begin, work = time.perf_counter(), time.process_time()
                for row, label in zip(new, labels, strict=True):
                    live.predict(row[None])
                    live.learn(row[None], [label])
                rate = n / (time.perf_counter() - begin)
                behind = live.change - live.through
                live.refresh()  # the solving that is under way is counted whole
                cpu = 1e3 * (time.process_time() - work) / n
                each = 1e3 * sum(solved) / n
                kept = "yes" if store else "no"
                found = f"{rate:14.0f} {cpu:13.2f} {each:11.2f} {behind:10} changes"
                print(f"{name:24} {kept:>10} {found}")


def solving(live: "LiveHead") -> list[float]:
    """Return a list that gets the seconds of processor time of each refresh from now on."""
    found: list[float] = []
    refresh = live.writer._refresh

    def timed(*about: object) -> None:
        begin = time.thread_time()
        refresh(*about)
        found.append(time.thread_time() - begin)

    live.writer._refresh = timed
    return found


def start(n: int) -> None:
    """Start with a journal of so many rows, which takes a service that never wrote a checkpoint."""
    import lastlayer as ll
    from lastlayer.live import LiveHead, writer

    writer.ROWS = writer.BYTES = 1 << 60
    z, y = rows(1000)
    with tempfile.TemporaryDirectory() as folder:
        live, killed = Path(folder) / "live", Path(folder) / "killed"
        with LiveHead(ll.HeadClassifier("slda").fit(z, y), live) as head:
            for place in range(0, n, 100):
                head.learn(z[place % 1000 : place % 1000 + 100], y[place % 1000 :][:100])
            shutil.copytree(live, killed)
        begin, work = time.perf_counter(), time.process_time()
        again = LiveHead(None, killed)
        took, cpu = time.perf_counter() - begin, time.process_time() - work
        print(f"a start with {n:,} rows in the journal: {took:.1f} s, {cpu:.1f} s of CPU")
        again.close()


def memory(requests: int, inside: bool) -> None:
    """Ask nine times for an answer, then learn, and so on."""
    z, y = rows(100, seed=3)
    listed = z.tolist()
    bodies = [json.dumps({"rows": [row]}).encode() for row in listed]
    both = [json.dumps({"rows": [row], "labels": [label]}).encode()
            for row, label in zip(listed, y, strict=True)]  # fmt: skip
    with application() if inside else serving_alone() as (number, asks):
        done = 0
        for count in (requests // 10, requests):
            asks("predict", bodies, (count - done) * 9 // 10)
            asks("learn", both, (count - done) // 10)
            done = count
            status = Path(f"/proc/{number}/status").read_text()
            resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
            print(f"after {count:,} requests, one in ten learned from: {resident:.0f} MiB")


Asks = Callable[[str, list[bytes], int], object]


@contextmanager
def serving_alone() -> Iterator[tuple[int, Asks]]:
    """Serve in a process of its own; give its number, and how to ask it."""
    with serving("ours") as (port, process):
        yield process.pid, lambda verb, bodies, n: times(port, verb, bodies, 4, n)


@contextmanager
def application() -> Iterator[tuple[int, Asks]]:
    """Give this process, and how to ask the application in it: all of the service but HTTP."""
    import asyncio

    import lastlayer as ll
    from lastlayer.live import LiveHead
    from lastlayer.live.service.application import make_app

    async def ask(app: object, verb: str, body: bytes) -> None:
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": f"/{verb}", "headers": headers,
                 "query_string": b"", "http_version": "1.1", "scheme": "http"}  # fmt: skip
        said: list[dict[str, object]] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": body}

        async def send(message: dict[str, object]) -> None:
            said.append(message)

        await app(scope, receive, send)  # type: ignore[operator]
        assert said[0]["status"] == 200, said

    with tempfile.TemporaryDirectory() as folder:
        clf = ll.HeadClassifier("slda").fit(*rows(4000))
        with LiveHead(clf, Path(folder) / "live") as head:
            app = make_app({"h": head})

            async def asks(verb: str, bodies: list[bytes], n: int) -> None:
                for place in range(n):
                    await ask(app, verb, bodies[place % len(bodies)])

            yield os.getpid(), lambda verb, bodies, n: asyncio.run(asks(verb, bodies, n))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["predict", "learn", "loop", "start", "memory", *OTHERS])
    parser.add_argument("--requests", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--head")
    parser.add_argument("--inside", action="store_true", help="the application, without HTTP")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.what in OTHERS:
        import uvicorn

        app = OTHERS[given.what](given.folder)
        config = uvicorn.Config(app, port=0, access_log=False, log_level="warning")
        server = uvicorn.Server(config)
        place = config.bind_socket()
        place.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as ours
        print(f"listening on http://127.0.0.1:{place.getsockname()[1]}", flush=True)
        server.run(sockets=[place])
        return
    memories = partial(memory, inside=given.inside)
    work = {"predict": (predict, given.requests or 2000), "learn": (learn, given.requests or 300),
            "loop": (partial(loop, head=given.head), given.rows or 1000),
            "start": (start, given.rows or 100_000),
            "memory": (memories, given.requests or 100_000)}  # fmt: skip
    do, amount = work[given.what]
    do(amount)


if __name__ == "__main__":
    main()
