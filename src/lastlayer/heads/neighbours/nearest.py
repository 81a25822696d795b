"""Exact nearest neighbours: bounds rule most rows out, exact distances decide among the rest.

Distances are computed from the differences, in float64; at equal distance the earlier row is
nearer. So the result does not depend on how the work is cut up, nor on an offset of the features.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lastlayer.heads.neighbours.bounds import (
    QUERIES,
    TILE,
    Frame,
    candidates,
    fit_frame,
    make_ready,
)
from lastlayer.threads import even_size, map_in_threads, thread_count


class Nearest(NamedTuple):
    """The nearest rows of each query in ascending order; row −1 at distance ∞ where none is."""

    squared: Tensor  # (n, k) float64: squared distances
    row: Tensor  # (n, k) int64: row numbers


def nobody(n: int, k: int, device: torch.device) -> Nearest:
    """Return the k nearest of n queries among no rows at all."""
    squared = torch.full((n, k), torch.inf, dtype=torch.float64, device=device)
    return Nearest(squared, torch.full((n, k), -1, device=device))


def extend(nearest: Nearest, queries: Tensor, rows: Tensor, first: int = 0) -> Nearest:
    """Return the nearest among the rows behind ``nearest`` and further ones.

    Args:
        nearest: the k nearest of each query so far; ``nobody`` to begin with.
        queries: (n, h).
        rows: (m, h), the rows with numbers ``first``, ``first`` + 1 …, above all earlier ones.
        first: the number of the first row.

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


def exact_among(nearest: Nearest, query: Tensor, rows: Tensor, some: Tensor) -> Nearest:
    """Return the nearest of one query (1, h) among ``nearest`` and some rows, ascending."""
    i = torch.zeros_like(some)
    return _merge(nearest, i, _squared_distances(query, rows, i, some), some)


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
