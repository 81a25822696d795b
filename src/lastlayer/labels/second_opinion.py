"""What the nearest neighbours of some rows say: is what a head takes for noise only its own error?

A head that describes rows badly contradicts right labels, and counts them as wrong. Neighbours see
what it cannot. So some rows are judged by both, the likelihood of their labels says how much either
counts, and the head's own count is believed if it lies in the interval of both. This also decides
which pairs of classes wrong labels fall on: those that are alike, or those that are found.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lastlayer.errors import DataError
from lastlayer.labels.noise import LOGITS, ROWS, WIDE, Noise
from lastlayer.labels.out_of_fold import OutOfFold

NEIGHBOURS = 10
FEWEST, WORK = 1000, 1 << 32  # rows whose neighbours are asked, or as many as take so many products
AMONG = 1 << 17  # rows at most that neighbours are looked for among, any ones
CLEARLY = 3.0  # by which the log likelihood of pairs that are counted must be better
_ASKED, _BLOCK = 1000, 1 << 22  # rows, and distances, at once


class Beside(NamedTuple):
    """The share of wrong labels among some rows: by the head alone, and with their neighbours."""

    rows: int
    alone: float
    least: float
    share: float
    most: float

    @property
    def confirms(self) -> bool:
        """Whether the head's own count may be believed, to a label of those rows."""
        return self.least - 1 / self.rows <= self.alone <= self.most + 1 / self.rows

    def by_both(self, n: int) -> tuple[float, tuple[float, float]]:
        """Return how many of n labels are wrong, by both, and between which numbers that is."""
        drawn = WIDE**2 * n * self.share * (1 - self.share)
        below, above = (
            math.sqrt(drawn + (n * (self.share - end)) ** 2) for end in (self.least, self.most)
        )
        expected = n * self.share
        return expected, (max(expected - below, 0.0), min(expected + above, float(n)))


def fit(found: OutOfFold) -> tuple[Noise, Beside]:
    """Fit the noise model to rows that can be judged, and ask the neighbours of some."""
    judged = (~found.alone).nonzero().flatten()
    if not len(judged):
        raise DataError("an audit needs a class with 2 rows that differ, got single rows only")
    judged = judged[torch.randperm(len(judged), generator=torch.Generator().manual_seed(0))]
    rows = judged[: max(LOGITS // found.n_classes, ROWS)].sort().values
    own_temperature = found.head._own_temperature()
    noise = Noise.fit(logits := found.of(rows), found.y[rows], own=own_temperature)

    most = max(FEWEST, WORK // found.z.numel())
    asked, others = judged[: (len(judged) + 1) // 2][:most], judged[(len(judged) + 1) // 2 :]
    own, y = found.of(asked), found.y[asked]
    said = votes(found.z, found.y, found.copies.group, asked)
    shares, surprise = noise.beside(own, y, said, noise.pairs)
    others = others[: len(rows)]
    if len(others):
        pairs = counted(found.of(others), found.y[others])
        better, less = noise.beside(own, y, said, pairs)
        if less < surprise - CLEARLY:
            shares = better
            pairs = counted(logits, found.y[rows])
            as_found = Noise.fit(logits, found.y[rows], pairs, own_temperature)
            noise = min((noise, as_found), key=lambda one: abs(one.mean(own, y) - shares[1]))
    return noise, Beside(len(asked), noise.mean(own, y), *shares)


def votes(z: Tensor, y: Tensor, group: Tensor, rows: Tensor) -> Tensor:
    """Return the logits (m, k) that the labels of the nearest rows give to some ``rows`` (m,).

    ``group`` (n,) is the same number for rows that are equal, in label too: these have no say.

    >>> z, y = torch.tensor([[0.0], [1.0], [1.5], [9.0]]), torch.tensor([0, 0, 1, 1])
    >>> (votes(z, y, torch.arange(4), torch.tensor([1])).exp() - 0.5).round().tolist()
    [[1.0, 2.0]]
    """
    among = torch.arange(len(z))
    if len(z) > AMONG:
        order = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))
        among = order[:AMONG].sort().values
    middle = z[rows].double().mean(dim=0)
    found = torch.zeros(len(rows), int(y.max()) + 1, dtype=torch.float64)
    for place in torch.arange(len(rows)).split(_ASKED):
        near, apart = _nearest(z, group, rows[place], among, middle)
        said = torch.zeros(len(place), found.shape[1], dtype=torch.float64)
        found[place] = said.scatter_add_(1, y[near], apart.isfinite().double())
    return (found + 0.5).log()


def _nearest(
    z: Tensor, group: Tensor, rows: Tensor, among: Tensor, middle: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the nearest rows (m, NEIGHBOURS) of another group, and how far they are.

    Where there are too few, some are infinitely far.
    """
    k = min(NEIGHBOURS, len(among) - 1)
    asked = (z[rows].double() - middle).float()
    best, nearest = torch.full((len(rows), k), torch.inf), torch.zeros(len(rows), k).long()
    for part in among.split(max(_BLOCK // max(len(rows), z.shape[1]), k)):
        others = (z[part].double() - middle).float()
        apart = torch.addmm(others.square().sum(dim=1), asked, others.mT, alpha=-2)
        own = torch.isin(group[part], group[rows]).nonzero().flatten()
        copies = group[part[own]] == group[rows][:, None]
        apart[:, own] = apart[:, own].masked_fill_(copies, torch.inf)
        near = apart.topk(min(k, len(part)), dim=1, largest=False)
        best, place = torch.cat([best, near.values], dim=1).topk(k, dim=1, largest=False)
        nearest = torch.cat([nearest, part[near.indices]], dim=1).gather(1, place)
    return nearest, best


def counted(logits: Tensor, y: Tensor) -> Tensor:
    """Return how often rows that are answered with each class have each other label (k, k)."""
    k = logits.shape[1]
    answers = logits.argmax(dim=1)
    often = (answers * k + y).bincount(minlength=k * k).double().view(k, k) + 1 / k**2
    often.fill_diagonal_(0)
    rows = answers.bincount(minlength=k).double().clamp(min=1)
    return often / rows[:, None] * (rows.sum() / often.sum())
