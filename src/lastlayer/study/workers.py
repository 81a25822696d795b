"""Work in several threads of one core each; what is done comes out as soon as it is."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import as_completed
from typing import TypeVar

from lastlayer.threads import one_core_each

T = TypeVar("T")
R = TypeVar("R")


def as_done(work: Callable[[T], R], pieces: Iterable[T], threads: int) -> Iterator[R]:
    """Give ``work(piece)`` for each piece, whichever is ready first.

    Small trainings gain little from two cores at once, and twice as much from one core each. Who
    stops taking waits for the pieces that are under way, and not for the others.

    >>> sorted(as_done(len, ["a", "bcd"], threads=2))
    [1, 3]
    """
    if threads == 1:
        yield from map(work, pieces)
        return
    with one_core_each(threads) as pool:
        for future in as_completed([pool.submit(work, piece) for piece in pieces]):
            yield future.result()
