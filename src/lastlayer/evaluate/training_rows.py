"""The rows that a classifier learns: divided by its scale, in batches, in order or shuffled."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.evaluate.pool import shuffled_batches


class Divided:
    """Features (n, h), on disk or in memory, that are divided by a number when they are read.

    What a head is shown comes out of here and nowhere else, so that no verb can leave out the
    classifier's ``feature_scale``.
    """

    def __init__(self, z: Tensor, by: float) -> None:
        self._z, self._by = z, by

    def __len__(self) -> int:
        return len(self._z)

    def __getitem__(self, rows: Any) -> Tensor:
        part = self._z[rows]
        return part if self._by == 1 else part.double() / self._by

    def split(self, size: int) -> Iterator[Tensor]:
        """Read them in their order, that many rows at a time."""
        return (self[start : start + size] for start in range(0, max(len(self), 1), size))


def in_order(
    z: Divided, of: Sequence[Tensor], size: int, learned: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows to learn (n,) in the order of the data; those on disk a batch at a time.

    With the features goes ``of``: their labels, and what else belongs to each row.
    """
    parts = (t.split(size) for t in (*of, learned))
    for *some, wanted in zip(z.split(size), *parts, strict=True):
        yield tuple(some) if wanted.all() else tuple(part[wanted] for part in some)


def shuffled(
    z: Divided, of: Sequence[Tensor], size: int, learned: Tensor, random: np.random.RandomState
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows to learn once, in random order."""
    place = learned.nonzero().flatten()
    generator = torch.Generator().manual_seed(int(random.randint(2**31)))
    for batch in shuffled_batches(len(place), size, generator):
        yield z[place[batch]], *(part[place[batch]] for part in of)
