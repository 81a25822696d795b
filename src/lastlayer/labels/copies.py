"""Rows that are there more than once: exact copies by their hashes, near ones by their distance."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.tensors import row_hashes

NEAR = 0.1  # of the usual distance of two rows of a class: nearer ones show the same thing
_BLOCK = 1 << 22  # distances at once
# In so many directions rows are compared first, or in a fourth of all; no distance grows by leaving
# out others, so no copy is missed.
_DIRECTIONS, _FEWEST = 32, 8
_ROUNDING = 1e-4  # of squared lengths, more than products in float32 lose


class Pair(NamedTuple):
    """Two rows that are alike and have different labels."""

    row: int
    other: int
    distance: float  # a share of the usual distance of two rows of a class; 0: exact copies


class Copies:
    """Which rows z (n, h) of labels y (n,) are equal, with the same label or with another one.

    >>> copies = Copies(torch.tensor([[1.0], [1.0], [1.0], [2.0]]), torch.tensor([0, 0, 1, 1]))
    >>> copies.times.tolist(), [(pair.row, pair.other) for pair in copies.contradicting()]
    ([2, 2, 1, 1], [(0, 2), (1, 2)])
    """

    def __init__(self, z: Tensor, y: Tensor) -> None:
        self._y = y.numpy()
        _, self._alike, size = np.unique(row_hashes(z), return_inverse=True, return_counts=True)
        own = self._alike * (int(self._y.max()) + 1) + self._y
        _, inverse, counts = np.unique(own, return_inverse=True, return_counts=True)
        self.group = torch.from_numpy(inverse)  # (n,) the same for rows equal in label too
        self.times = torch.from_numpy(counts[inverse])  # (n,) how often a row is there so labelled
        self.others = torch.from_numpy(size[self._alike]) - self.times  # and with other labels

    def contradicting(self) -> list[Pair]:
        """Return each row of which there is a copy with another label, beside the first such."""
        rows = np.flatnonzero(self.others.numpy() > 0)
        rows = rows[np.argsort(self._alike[rows], kind="stable")]
        found = set()
        for group in np.split(rows, np.flatnonzero(np.diff(self._alike[rows])) + 1):
            if not len(group):
                continue
            as_first = self._y[group] == self._y[group[0]]
            for row, other in zip(
                group, np.where(as_first, group[~as_first][0], group[0]), strict=True
            ):
                found.add(Pair(int(min(row, other)), int(max(row, other)), 0.0))
        return sorted(found)


def near_copies(z: Tensor, y: Tensor, candidates: Tensor, usual: float) -> list[Pair]:
    """Return candidates (m,) whose nearest row of another label is much nearer than is usual.

    ``usual`` is the usual distance of two rows of a class.
    """
    if not len(candidates) or not usual > 0:
        return []
    middle = z[candidates].double().mean(dim=0)
    from_ = (z[candidates].double() - middle).float()
    best = torch.full((len(candidates),), torch.inf)
    nearest = torch.full((len(candidates),), -1)
    may_be_near = _Screen(from_, NEAR * usual)
    for block in torch.arange(len(z)).split(max(_BLOCK // max(len(candidates), z.shape[1]), 1)):
        part = (z[block].double() - middle).float()
        some = may_be_near.those_of(part)
        if not len(some):
            continue
        rows, part = block[some], part[some]
        squared = torch.addmm(part.square().sum(dim=1), from_, part.mT, alpha=-2)
        squared.masked_fill_(y[rows] == y[candidates][:, None], torch.inf)
        least, place = squared.min(dim=1)
        nearest = torch.where(least < best, rows[place], nearest)
        best = torch.minimum(least, best)
    found = []
    for row, other in zip(candidates.tolist(), nearest.tolist(), strict=True):
        # The product has rounded: what counts is the difference itself.
        apart = float((z[row].double() - z[other].double()).norm()) if other >= 0 else np.inf
        if 0 < apart <= NEAR * usual:
            found.append(Pair(min(row, other), max(row, other), apart / usual))
    return sorted(set(found))


class _Screen:
    """Rows that may be within a limit of others (m, h), by a few directions at right angles.

    The others are float32, from their middle.
    """

    def __init__(self, others: Tensor, limit: float) -> None:
        h = others.shape[1]
        self.directions: Tensor | None = None
        few = min(_DIRECTIONS, h // 4)
        if few >= _FEWEST:
            random = torch.randn(h, few, generator=torch.Generator().manual_seed(0))
            self.directions = torch.linalg.qr(random)[0]
            self.others = others @ self.directions
            self.lengths = self.others.square().sum(dim=1)
            self.limit = limit**2 + _ROUNDING * float(self.lengths.max())

    def those_of(self, part: Tensor) -> Tensor:
        """Return which of some rows (n, h) may be near one of the others."""
        if self.directions is None:
            return torch.arange(len(part))
        part = part @ self.directions
        lengths = part.square().sum(dim=1)
        nearest = torch.addmm(self.lengths, part, self.others.mT, alpha=-2).amin(dim=1) + lengths
        return (nearest <= self.limit + _ROUNDING * lengths).nonzero().flatten()
