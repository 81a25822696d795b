"""A budget: how many rows of each class a memory keeps, and which ones."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.names import look_up
from lastlayer.heads.neighbours.stored_rows import Memory
from lastlayer.heads.shared_module import Resizable

_TILE = 1 << 22  # elements of the largest array made on the way


class Budget(Resizable):
    """Cuts the classes of a memory to size; what it keeps of a class never depends on others.

    A class that has more rows than ``limit`` keeps ``size`` of them. ``keep`` is as ``KnnHead``
    takes it.
    """

    priority: Tensor  # (n,) float64, for each row of the memory: the least are kept at random
    arrived: Tensor  # () int64: rows that have come so far

    def __init__(self, size: int, limit: int, keep: str, seed: int) -> None:
        super().__init__()
        self.size, self.limit, self.seed = size, limit, seed
        self._rank = look_up(keep, RANKS, "way to keep")
        self.register_buffer("priority", torch.empty(0, dtype=torch.float64))
        self.register_buffer("arrived", torch.zeros((), dtype=torch.int64))

    def admit(self, n: int) -> None:
        """Note that n rows were appended; the priority of a row depends on its number only."""
        source = np.random.PCG64(self.seed).advance(int(self.arrived))
        drawn = torch.from_numpy(np.random.Generator(source).random(n))
        self.priority = torch.cat([self.priority, drawn.to(self.priority)])
        self.arrived = self.arrived + n  # in place it could not be undone

    def cut(self, memory: Memory) -> None:
        """Cut the classes that have more rows than the limit; at equal rank earlier rows stay."""
        stays = torch.ones_like(memory.y, dtype=torch.bool)
        for c in (memory.y.bincount() > self.limit).nonzero().flatten():
            rows = (memory.y == c).nonzero().flatten()
            rank = self._rank(memory.z, self.priority, rows, self.size)
            stays[rows[rank.argsort(stable=True)[self.size :]]] = False
        if not bool(stays.all()):
            self.keep(memory, stays)

    def keep(self, memory: Memory, stays: Tensor) -> None:
        """Keep the rows marked in ``stays`` (n,) and drop the others."""
        memory.keep(stays.nonzero().flatten())
        self.priority = self.priority[stays]


def centrality(z: Tensor, size: int) -> Tensor:
    """Return ranks (n,) whose ``size`` least are those of ``summed_distance``, ties included.

    Sums from one matrix product have a bounded error. Farther than that from the ``size``-th they
    decide; only the rows in between are summed exactly.
    """
    rank, error = _rough_sums(z.double())
    edge = rank.kthvalue(size).values  # wrong by at most the error, too
    unsure = ~((rank - edge).abs() > 2 * error)  # also where a number is not finite
    rank[unsure] = summed_distance(z, unsure)
    return rank


def summed_distance(z: Tensor, which: Tensor | slice = slice(None)) -> Tensor:
    """Return the summed distance to all rows of each row, or of those in ``which``."""
    z = z.double()
    parts = z[which].split(_TILE // z.shape[0] or 1)
    mode = "donot_use_mm_for_euclid_dist"  # by differences, so that equal rows rank alike
    return torch.cat([torch.cdist(part, z, compute_mode=mode).sum(1) for part in parts])


def _rough_sums(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's summed distance (n,) by matrix products, and a bound on its error."""
    z = z - z.mean(dim=0)
    n, h = z.shape
    square = z.square().sum(1)
    parts = zip(*(t.split(_TILE // n or 1) for t in (z, square)), strict=True)
    squared = (torch.addmm(square, part, z.T, alpha=-2).add_(own[:, None]) for part, own in parts)
    sums = torch.cat([values.clamp_(min=0).sqrt_().sum(1) for values in squared])
    # a square is wrong by at most (2h + 7)·ε·max‖z‖², and its root by at most the root of that
    wrong = 4 * ((h + 4) * torch.finfo(z.dtype).eps * square.max()).sqrt()
    return sums, n * (wrong + 1e-150)


RANKS: Mapping[str, Callable[[Tensor, Tensor, Tensor, int], Tensor]] = {
    "central": lambda z, priority, rows, size: centrality(z[rows], size),
    "random": lambda z, priority, rows, size: priority[rows],
    "first": lambda z, priority, rows, size: rows,
}
