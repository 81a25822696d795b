"""Threads: how many PyTorch and BLAS have, and work in several threads of one core each.

Both numbers are settings of the process, which are changed here and nowhere else; callers say how
many they want for a piece of work (`blas.add_symmetric` for products).
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, TypeVar

import scipy.linalg  # noqa: F401  (its BLAS is then among those that are found)
import torch
from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")


def thread_count(device: torch.device, most: int = 8) -> int:
    """Return how many threads are worth having: PyTorch's number on a CPU, else one."""
    return min(torch.get_num_threads(), most) if device.type == "cpu" else 1


def even_size(n: int, most: int, threads: int) -> int:
    """Return a size for pieces of n things, at most ``most`` each, that keeps all threads busy.

    >>> even_size(10_000, most=1024, threads=4)
    834
    """
    rounds = -(-n // (most * threads))
    return max(1, -(-n // (rounds * threads)))


def map_in_threads(work: Callable[[T], R], pieces: Iterable[T], threads: int) -> list[R]:
    """Return ``[work(piece) for piece in pieces]``.

    >>> map_in_threads(len, ["a", "bcd"], threads=2)
    [1, 3]
    """
    if threads == 1:
        return [work(piece) for piece in pieces]
    with one_core_each(threads) as pool:
        return list(pool.map(work, pieces))


@contextmanager
def one_core_each(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads of one core each; work that has not begun at its end is dropped."""
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    with blas_threads(1):
        try:
            yield pool
        finally:  # the setting holds in its own thread, but is also what a new thread starts with
            try:
                pool.shutdown(cancel_futures=True)
            finally:
                torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch have one thread in this block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Limit:
    """How many threads BLAS has: a setting of the process, and who needs it as it is."""

    lock = threading.RLock()
    users: ClassVar[set[int]] = set()
    restore: ClassVar[Callable[[], None] | None] = None

    def __init__(self, n: int) -> None:
        with self.lock:
            if _Limit.restore is None:
                _anybody_may_set()
                _Limit.restore = _libraries().limit(limits=n).restore_original_limits
            self.users.add(id(self))

    def end(self) -> None:
        with self.lock:
            self.users.discard(id(self))
            if not self.users and _Limit.restore is not None:
                _anybody_may_set()
                _Limit.restore()
                _Limit.restore = None
                _anybody_may_set()

    # An interrupt may keep the block from ending it: then it ends with the block's frame.
    __del__ = end


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Let BLAS have n threads in this block, or as many as those have who are in one already.

    The number is the process's: it is as before when the last one has left.
    """
    limit = _Limit(n)
    try:
        yield
    finally:
        limit.end()


@cache
def _libraries() -> Any:
    """Find the libraries of BLAS, and no others: OpenMP's number is each thread's own."""
    return ThreadpoolController().select(user_api="blas")


def _anybody_may_set() -> None:
    """Let any thread set the number: threadpoolctl lets only the first, which may not be last."""
    for library in _libraries().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):  # not in all versions
            library.clear_controlling_thread(force=True)
