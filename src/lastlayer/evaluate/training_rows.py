"""The rows that a classifier learns: divided by its scale, in batches, in order or shuffled."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.evaluate.pool import EPOCHS, epochs_for, shuffled_batches
from lastlayer.heads import Head


class Divided:
    """Features (n, h), on disk or in memory, that are divided by a number when they are read.

    What a head is shown comes out of here and nowhere else, so that no verb can leave out the
    classifier's ``feature_scale``.
    """

    def __init__(self, z: Tensor | NDArray[Any], by: float) -> None:
        if isinstance(z, np.ndarray):  # torch wants it writable and without negative strides
            z = torch.from_numpy(np.require(z, requirements=["C", "W"]))
        self._z, self._by = z, by

    def __len__(self) -> int:
        return len(self._z)

    def __getitem__(self, rows: Any) -> Tensor:
        part = self._z[rows]
        return part if self._by == 1 else part.double() / self._by

    def split(self, size: int) -> Iterator[Tensor]:
        """Read them in their order, that many rows at a time."""
        return (self[start : start + size] for start in range(0, max(len(self), 1), size))


def batches(
    z: Divided,
    of: Sequence[Tensor],
    learned: Tensor,
    head: Head,
    random: np.random.RandomState,
    *,
    size: int,
    epochs: int | None,
    first: bool,
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows to learn, (n,) bool, as often as a head wants to see them.

    With the features goes ``of``: their labels, and what else belongs to each row. Without
    ``epochs`` a head trained by gradient sees rows that come first as often as ``epochs_for`` says,
    and later ones as a large task.
    """
    if len(of) > 1:  # rows with weights fix a map at once: as many as it wants
        size = max(size, head.rows_to_begin)
    if head.passes is not None:
        for _ in range(head.passes):
            yield from in_order(z, of, size, learned)
        return
    usual = epochs_for([learned.nonzero()], size) if first else EPOCHS
    try:
        for epoch in range(epochs or usual):
            # A calibration that lives hears of each row once, when it is new.
            head._follows = epoch == 0
            yield from _shuffled(z, of, size, learned, random)
    finally:
        head._follows = True


def in_order(
    z: Divided, of: Sequence[Tensor], size: int, learned: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Yield rows in the order of the data; those on disk a batch at a time."""
    parts = (t.split(size) for t in (*of, learned))
    for *some, wanted in zip(z.split(size), *parts, strict=True):
        yield tuple(some) if wanted.all() else tuple(part[wanted] for part in some)


def _shuffled(
    z: Divided, of: Sequence[Tensor], size: int, learned: Tensor, random: np.random.RandomState
) -> Iterator[tuple[Tensor, ...]]:
    """Yield rows once, in random order."""
    place = learned.nonzero().flatten()
    generator = torch.Generator().manual_seed(int(random.randint(2**31)))
    for batch in shuffled_batches(len(place), size, generator):
        yield z[place[batch]], *(part[place[batch]] for part in of)
