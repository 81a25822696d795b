"""Do tasks here, in as many threads as there are cores."""

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from lastlayer.shards.listing import Shard
from lastlayer.shards.work import Answer, Task, do
from lastlayer.threads import one_core_each

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers of its settings
_PATIENCE = 0.5  # seconds between looks at Ctrl-C: where polars has handled it, no wait is broken
_DECIDED = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_LARGE, _LARGEST = 4 << 20, 32 << 20  # bytes of a block; glibc's own setting ends at the second


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Local:
    """Does tasks on this machine.

    Args:
        threads: How many at a time, of one core each; None: as many as there are cores. One alone
            is done with all of PyTorch's threads.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or cores()

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
        """Do tasks, and give each with its answer as soon as it is done."""
        threads = min(len(tasks), self._threads)
        if threads <= 1 or all(task["kind"] == "look" for task in tasks):
            yield from ((task, do(task)) for task in tasks)
            return
        enough = Event()
        with one_core_each(threads) as pool:
            try:
                waiting: dict[Future[Answer], Task] = {
                    pool.submit(do, task, enough): task for task in tasks
                }
                while waiting:
                    done, _ = wait(waiting, _PATIENCE, FIRST_COMPLETED)
                    for one in done:
                        yield waiting.pop(one), one.result()
            finally:  # after an error, or whoever asked has had enough
                enough.set()

    def prepare(self, folder: Path, shards: Sequence[Shard]) -> None:
        """Check nothing: this machine sees what it has listed."""

    def close(self) -> None:
        """Let go of nothing: threads end with their tasks."""


@contextmanager
def large_blocks_given_back() -> Iterator[None]:
    """Give the memory of large blocks back to the system as soon as they are freed, under glibc.

    By itself it comes to keep them, for each thread, and piece by piece of shards they leave more
    gaps that the next block does not fit into: 100 MiB after some gigabytes, and more with time.
    Whoever has set glibc's limits in the environment keeps them. Its own, which follow the blocks
    in use, cannot be brought back: afterwards they are as after the use of large blocks.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None or any(name in os.environ for name in _DECIDED):
        yield
        return
    mallopt(_MMAP_THRESHOLD, _LARGE)
    try:
        yield
    finally:  # nobody's work gets slower
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)
