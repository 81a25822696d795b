"""The nearest rows of fixed queries in a memory that grows and sometimes loses rows."""

import torch
from torch import Tensor

from lastlayer.heads.neighbours.memory import Memory
from lastlayer.heads.neighbours.nearest import Nearest, extend, nobody


class Followed:
    """Keeps the k nearest rows of each query, so that only changes are looked at again.

    Dropping a row that is not among a query's nearest changes nothing for it. So after rows were
    dropped, queries that lost a neighbour look at all rows, and the others only at new ones.

    Args:
        queries: (n, h).
        k: how many rows.
        memory: whose rows.

    >>> memory = Memory(1)
    >>> followed = Followed(torch.tensor([[0.0], [9.0]]), 1, memory)
    >>> memory.append(torch.tensor([[1.0], [2.0], [8.0]]), torch.tensor([0, 0, 0]))
    >>> followed.nearest().row.T
    tensor([[0, 2]])
    >>> memory.keep(torch.tensor([1, 2]))
    >>> followed.nearest().row.T
    tensor([[0, 1]])
    """

    def __init__(self, queries: Tensor, k: int, memory: Memory) -> None:
        self._queries, self._memory = queries, memory
        self._nearest = nobody(queries.shape[0], k, queries.device)
        self._number = memory.number[:0]  # of the rows that were looked at

    def nearest(self) -> Nearest:
        """Return the nearest rows of the memory as it is now."""
        stays = torch.isin(self._number, self._memory.number)
        known = int(stays.sum())  # these come first now
        if known < stays.numel():
            self._leave(stays, self._memory.z[:known])
        self._nearest = extend(self._nearest, self._queries, self._memory.z[known:], known)
        self._number = self._memory.number
        return self._nearest

    def _leave(self, stays: Tensor, rows: Tensor) -> None:
        """Renumber the rows that stay."""
        place = torch.where(stays, stays.cumsum(0) - 1, -2)
        place = torch.cat([place, place.new_full((1,), -1)])  # row −1, nobody, stays row −1
        row = place[self._nearest.row]
        lost = (row == -2).any(dim=1).nonzero().flatten()
        none = nobody(lost.numel(), row.shape[1], row.device)
        found = extend(none, self._queries[lost], rows)
        squared = self._nearest.squared.index_copy(0, lost, found.squared)
        self._nearest = Nearest(squared, row.index_copy(0, lost, found.row))
