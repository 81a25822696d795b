"""Work in several threads of one core each, so that none waits for another's steps."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from lastlayer.blas import blas_threads

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
