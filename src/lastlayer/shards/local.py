"""Do tasks here: in this process, or in as many as there are cores."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue

from lastlayer.errors import LastLayerError
from lastlayer.shards.listing import Shard
from lastlayer.shards.work import Answer, Task, do

TRIES = 2  # of a task whose process ends without an answer


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Local:
    """Does tasks on this machine.

    Args:
        processes: How many at a time; None: as many as there are cores. One task, or one process,
            is done here, with all of PyTorch's threads. They stay until it is closed.
    """

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes or cores()
        self._workers: list[_Worker] = []

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
        """Do tasks, and give each with its answer as soon as it is done."""
        if min(len(tasks), self._processes) <= 1 or all(task["kind"] == "look" for task in tasks):
            yield from ((task, do(task)) for task in tasks)
            return
        yield from self._in_processes(tasks)

    def prepare(self, folder: Path, shards: Sequence[Shard]) -> None:
        """Check nothing: this machine sees what it has listed."""

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _in_processes(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
        """Let threads wait for processes, one each."""
        while len(self._workers) < min(len(tasks), self._processes):
            self._workers.append(_Worker())
        workers = self._workers
        free: SimpleQueue[_Worker] = SimpleQueue()
        for worker in workers:
            free.put(worker)

        def ask(task: Task) -> Answer:
            worker = free.get()
            try:
                return worker.do(task)
            finally:
                free.put(worker)

        pool = ThreadPoolExecutor(len(workers))
        try:
            waiting: dict[Future[Answer], Task] = {pool.submit(ask, task): task for task in tasks}
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for one in done:
                    yield waiting.pop(one), one.result()
        except BaseException:  # whoever asked has had enough
            for worker in workers:
                worker.end()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


class _Worker:
    """A process that does one task after another, with one thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def do(self, task: Task) -> Answer:
        for _ in range(TRIES):
            process = self._process or self._begin()
            if process.stdin is None or process.stdout is None:
                raise LastLayerError("a process has no pipes")
            try:
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = ""
            if line:
                answer: Answer = json.loads(line)
                return answer
            code = self.close()
            if self._ended:
                break
        return {
            "error": "LastLayerError",
            "message": f"a process that learned shards ended without an answer, with code {code}: "
            "there may be too little memory for that many; rerun to resume",
        }

    def _begin(self) -> "subprocess.Popen[str]":
        package = str(Path(__file__).parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        one = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"),
            "1",
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lastlayer.shards.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | one | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        return self._process

    def end(self) -> None:
        """Kill it: whoever waits for its answer gets none, and asks no more."""
        self._ended = True
        if process := self._process:
            process.kill()

    def close(self) -> int:
        """Wait until it has ended, and return its code; nobody may be waiting for an answer."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with process:  # closes its pipes
            pass
        return process.returncode
