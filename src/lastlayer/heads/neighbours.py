"""Exact nearest neighbours: bounds rule most rows out, exact distances decide among the rest.

Distances are computed from the differences, in float64; at equal distance the earlier row is
nearer. So the result does not depend on how the work is cut up, nor on an offset of the features.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lastlayer.heads.bounds import PAIRS, SIDE, TILE, Frame, candidates, fit_frame


class Nearest(NamedTuple):
    """The nearest rows of each query in ascending order; row −1 at distance ∞ where none is."""

    squared: Tensor  # (n, k) float64: squared distances
    row: Tensor  # (n, k) int64: row numbers


def nobody(n: int, k: int, device: torch.device) -> Nearest:
    """The k nearest of n queries among no rows at all."""
    squared = torch.full((n, k), torch.inf, dtype=torch.float64, device=device)
    return Nearest(squared, torch.full((n, k), -1, device=device))


def extend(nearest: Nearest, queries: Tensor, rows: Tensor, first: int = 0) -> Nearest:
    """Give the nearest among the rows that ``nearest`` comes from and further ones.

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
    size = min(SIDE, TILE // max(queries.shape[1], nearest.row.shape[1]) or 1)
    blocks = zip(*(t.split(size) for t in (*nearest, queries)), strict=True)
    done = [_extend_block(Nearest(s, r), q, rows, first, frame) for s, r, q in blocks]
    return Nearest(*(torch.cat(parts) for parts in zip(*done, strict=True)))


def _extend_block(
    nearest: Nearest, queries: Tensor, rows: Tensor, first: int, frame: Frame
) -> Nearest:
    """Collect the pairs that may matter; compare them when there are many."""
    i = j = nearest.row.new_empty(0)
    for more_i, more_j in candidates(nearest.squared, queries, rows, frame):
        i, j = torch.cat([i, more_i]), torch.cat([j, more_j])
        if i.numel() > PAIRS:
            nearest = _merge(nearest, i, _squared_distances(queries, rows, i, j), j + first)
            i, j = i[:0], j[:0]
    return _merge(nearest, i, _squared_distances(queries, rows, i, j), j + first)


def _merge(nearest: Nearest, i: Tensor, squared: Tensor, row: Tensor) -> Nearest:
    """Take in further rows of queries i; stable sorts leave the earlier row first at a tie."""
    n, k = nearest.row.shape
    i = torch.cat([torch.arange(n, device=i.device).repeat_interleave(k), i])
    squared = torch.cat([nearest.squared.flatten(), squared])
    row = torch.cat([nearest.row.flatten(), row])
    order = squared.argsort(stable=True)
    order = order[i[order].argsort(stable=True)]
    count = i.bincount()
    place = torch.arange(i.numel(), device=i.device)
    place -= (count.cumsum(0) - count).repeat_interleave(count)
    best = order[place < k].view(n, k)
    return Nearest(squared[best], row[best])


def _squared_distances(queries: Tensor, rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Give ‖q_i − m_j‖² in float64, summed by halves: the same bits in any batch."""
    size = TILE // (8 * queries.shape[1]) or 1
    parts = [torch.empty_like(i[:0], dtype=torch.float64)]
    for a, b in zip(i.split(size), j.split(size), strict=True):
        x = (queries[a].double() - rows[b].double()).square_()
        while x.shape[1] > 1:
            half = (x.shape[1] + 1) // 2
            x[:, : x.shape[1] - half] += x[:, half:]
            x = x[:, :half]
        parts.append(x[:, 0].clone())
    return torch.cat(parts)
