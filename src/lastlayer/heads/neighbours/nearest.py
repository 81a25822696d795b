"""Exact nearest neighbours: bounds rule most rows out, exact distances decide among the rest.

Distances are computed from the differences, in float64; at equal distance the earlier row is
nearer. So the result does not depend on how the work is cut up, nor on an offset of the features.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lastlayer.core.threads import even_size, map_in_threads, thread_count
from lastlayer.errors import DataError
from lastlayer.heads.neighbours.bounds import (
    QUERIES,
    TILE,
    Frame,
    candidates,
    fit_frame,
    make_ready,
)
from lastlayer.heads.neighbours.stored_rows import Memory

FEW = 4  # queries for which a pass over the rows each is sooner done than a tile is prepared
_MOST = 4096  # rows that may be looked at again


class Nearest(NamedTuple):
    """The nearest rows of each query in ascending order; row −1 at distance ∞ where none is."""

    squared: Tensor  # (n, k) float64: squared distances
    row: Tensor  # (n, k) int64: row numbers


def nobody(n: int, k: int, device: torch.device) -> Nearest:
    """Return the k nearest of n queries among no rows at all."""
    squared = torch.full((n, k), torch.inf, dtype=torch.float64, device=device)
    return Nearest(squared, torch.full((n, k), -1, device=device))


def extend(nearest: Nearest, queries: Tensor, rows: Tensor, first: int = 0) -> Nearest:
    """Return the nearest among the rows behind ``nearest``, at first ``nobody``, and further ones.

    The rows (m, h) have the numbers ``first``, ``first`` + 1 …, above all earlier ones.

    >>> rows = torch.tensor([[0.0], [5.0], [7.0]])
    >>> extend(nobody(1, 2, rows.device), torch.tensor([[6.0]]), rows).row
    tensor([[1, 2]])
    """
    if not queries.shape[0] or not rows.shape[0]:
        return nearest
    frame = fit_frame(queries, rows)
    for part in rows.split(TILE // rows.shape[1] or 1):
        nearest = _extend_by_part(nearest, queries, part, first, frame)
        first += part.shape[0]
    return nearest


def _extend_by_part(
    nearest: Nearest, queries: Tensor, rows: Tensor, first: int, frame: Frame
) -> Nearest:
    """Extend by as many rows as fit into memory at once."""
    n, k = nearest.row.shape
    ready = make_ready(rows, k, frame)

    def extend_some(block: tuple[Tensor, Tensor, Tensor]) -> Nearest:
        squared, row, q = block
        best = Nearest(squared, row)
        for i, j in candidates(squared, q, ready, frame):
            best = _merge(best, i, _squared_distances(q, rows, i, j), j + first)
        return best

    threads = thread_count(queries.device)
    most = min(QUERIES, TILE // (4 * threads * max(k, queries.shape[1])) or 1)
    size = even_size(n, most, threads)
    blocks = zip(*(t.split(size) for t in (*nearest, queries)), strict=True)
    done = map_in_threads(extend_some, blocks, threads)
    return Nearest(*(torch.cat(parts) for parts in zip(*done, strict=True)))


def _merge(nearest: Nearest, i: Tensor, squared: Tensor, row: Tensor) -> Nearest:
    """Merge further rows of queries i; stable sorts leave the earlier row first at a tie."""
    some, i = i.unique(return_inverse=True)
    n, k = some.numel(), nearest.row.shape[1]
    i = torch.cat([torch.arange(n, device=i.device).repeat_interleave(k), i])
    squared = torch.cat([nearest.squared[some].flatten(), squared])
    row = torch.cat([nearest.row[some].flatten(), row])
    order = squared.argsort(stable=True)
    order = order[i[order].argsort(stable=True)]
    count = i.bincount()
    place = torch.arange(i.numel(), device=i.device)
    place -= (count.cumsum(0) - count).repeat_interleave(count)
    best = order[place < k].view(n, k)
    return Nearest(
        nearest.squared.index_copy(0, some, squared[best]),
        nearest.row.index_copy(0, some, row[best]),
    )


def _squared_distances(queries: Tensor, rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Return ‖q_i − m_j‖² in float64, summed by halves: the same bits in any batch."""
    squared = torch.empty_like(i, dtype=torch.float64)
    size = TILE // (32 * queries.shape[1]) or 1
    for a, b, out in zip(*(t.split(size) for t in (i, j, squared)), strict=True):
        x = (queries[a].double() - rows[b].double()).square_()
        while x.shape[1] > 1:
            half = (x.shape[1] + 1) // 2
            x[:, : x.shape[1] - half] += x[:, half:]
            x = x[:, :half]
        out.copy_(x[:, 0])
    return squared


def nearest_others(z: Tensor, y: Tensor, k: int, memory: Memory) -> Nearest:
    """Return the k nearest stored rows of each row, but for those that equal it in label too.

    >>> memory = Memory(1)
    >>> z, y = torch.tensor([[0.0], [0.0], [0.0], [3.0]]), torch.tensor([0, 0, 1, 1])
    >>> memory.append(z, y)
    >>> nearest_others(z, y, 1, memory).row.T
    tensor([[2, 2, 0, 0]])
    """
    result, wanted = nobody(len(z), k, z.device), torch.arange(len(z), device=z.device)
    look = k + 1
    while len(wanted):
        found = extend(nobody(len(wanted), look, z.device), z[wanted], memory.z)
        copy = (found.squared == 0) & (memory.y[found.row] == y[wanted, None])
        lost = (~copy.any(dim=1) & (found.squared[:, -1] > 0)).nonzero().flatten()
        if len(lost):
            raise DataError(
                f"rows to leave out must have been learned with their labels, but row "
                f"{int(wanted[lost[0]])} was not"
            )
        enough = (copy.any(dim=1) & (copy.sum(dim=1) + k <= look)) | (look >= len(memory))
        others = _without(found, copy, k)
        for own, new in zip(result, others, strict=True):
            own[wanted[enough]] = new[enough]
        wanted, look = wanted[~enough], 2 * look
    return result


def _without(found: Nearest, gone: Tensor, k: int) -> Nearest:
    """Drop some neighbours, and return the k nearest of the others."""
    first = gone.int().argsort(dim=1, stable=True)
    squared = found.squared.masked_fill(gone, torch.inf).gather(1, first)[:, :k]
    return Nearest(squared, found.row.masked_fill(gone, -1).gather(1, first)[:, :k])


class Lengths:
    """Caches ½‖m − c‖² of a memory's rows; c is the first row, so that none ever changes."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: tuple[int, torch.dtype, torch.device] | None = None
        self._half = torch.empty(0)

    def nearest(self, query: Tensor, k: int) -> Nearest | None:
        """Return the k nearest rows of one query (1, h), or None where rounding hides them.

        ½‖m − c‖² − (q − c)·(m − c) orders the rows m as their distances from q do. Its rounding
        error is bounded, so only rows that are near enough for it are measured exactly.
        """
        rows = self._memory.z
        if rows.dtype not in (torch.float32, torch.float64) or not len(rows):
            return None
        half, first = self._halves(), rows[0]
        q = query[0].double() - first.double()
        rough = half - torch.mv(rows, q.to(rows.dtype))
        longest = float(half.max()) ** 0.5 * 1.5 + float(torch.linalg.vector_norm(first.double()))
        eps, h = torch.finfo(rows.dtype).eps, rows.shape[1]
        wrong = 2 * (h + 8) * eps * longest * (longest + float(torch.linalg.vector_norm(q)))
        near = rough.topk(min(k, len(rows)), largest=False).values[-1]
        # not (>): also where a number is not finite
        found = (~(rough > near + 2 * wrong)).nonzero().flatten()
        if found.numel() > _MOST:
            return None
        i = torch.zeros_like(found)
        return _merge(
            nobody(1, k, rows.device), i, _squared_distances(query, rows, i, found), found
        )

    def _halves(self) -> Tensor:
        memory = self._memory
        known = (memory.rewrites, memory.z.dtype, memory.z.device)
        if known != self._known:
            self._half, self._known = memory.z.new_empty(0), known
        if self._half.numel() < len(memory):
            first = memory.z[:1]
            parts = memory.z[self._half.numel() :].split(max((1 << 20) // first.shape[1], 1))
            more = [(part - first).square_().sum(dim=1).div_(2) for part in parts]
            self._half = torch.cat([self._half, *more])
        return self._half


class FixedQueries:
    """Keeps the k nearest rows of each query, so that only changes are looked at again.

    Dropping a row that is not among a query's nearest changes nothing for it. So after rows were
    dropped, queries that lost a neighbour look at all rows, and the others only at new ones.

    >>> memory = Memory(1)
    >>> fixed = FixedQueries(torch.tensor([[0.0], [9.0]]), 1, memory)
    >>> memory.append(torch.tensor([[1.0], [2.0], [8.0]]), torch.tensor([0, 0, 0]))
    >>> fixed.nearest().row.T
    tensor([[0, 2]])
    >>> memory.keep(torch.tensor([1, 2]))
    >>> fixed.nearest().row.T
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
