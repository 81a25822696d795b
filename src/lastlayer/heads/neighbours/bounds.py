"""Which rows can be among the k nearest of a query: bounds from one matrix product per tile.

For a query q and rows m, centred and scaled, ½‖m‖² − q·m orders the rows as their distances to q
do. A tile of these values comes from one product, whose rounding error is bounded. The rows are
taken in short runs: only a run whose least value is not above the k-th best is looked at again.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

TILE = 1 << 22  # elements of the largest array made on the way
QUERIES, ROWS = 1024, 2048  # of one tile
PAIRS = 1 << 15  # pairs of a query and a row that are handled at once
_RUN = 64  # rows that are first looked at as one
_FAR = 1e30  # beyond every value of a tile


class Frame(NamedTuple):
    """An offset and a scale for all numbers. Any frame is correct; a good one rounds less."""

    centre: Tensor  # (h,), of the type to subtract in
    scale: float
    dtype: torch.dtype  # of the product
    error: float  # c, where a value is wrong by at most c/4·(‖q‖² + ‖m‖²)


class Ready(NamedTuple):
    """Rows made ready for the product."""

    m: Tensor  # (rows, h + 1): centred and scaled, with ½‖m‖² less its error; whole runs
    peak: Tensor  # (runs,): how far above its bound the true value of a row in the run can be


def fit_frame(queries: Tensor, rows: Tensor) -> Frame:
    """Return a frame in which the numbers are near 0 and at most about 1."""
    h = queries.shape[1]
    ends = [float(end) for x in (queries, rows) for end in x.aminmax()]
    scale = (max(ends) - min(ends)) or 1.0
    wide = torch.float32 if 1 / _FAR < scale < _FAR else torch.float64
    wide = torch.promote_types(torch.promote_types(queries.dtype, rows.dtype), wide)
    centre = rows[: TILE // h or 1][:ROWS].to(wide).mean(dim=0)
    dtype = _product_dtype(h)
    return Frame(centre, scale, dtype, 2 * (h + 4) * torch.finfo(dtype).eps)


def make_ready(rows: Tensor, k: int, frame: Frame) -> Ready:
    """Add ½‖m‖² less its error to each row m, and pad the last run with rows that are far away."""
    m = _scale(rows, frame)
    run = max(1, min(_RUN, ROWS // (2 * k), m.shape[0] // (2 * k)))
    full = m.new_zeros(-(-m.shape[0] // run) * run, m.shape[1] + 1)
    full[:, -1] = 2 * _FAR
    full[: m.shape[0], :-1] = m
    full[: m.shape[0], -1] = m.square().sum(1) * (0.5 - frame.error)
    return Ready(full, 8 * frame.error * full[:, -1].unflatten(0, (-1, run)).amax(1))


def candidates(
    squared: Tensor, queries: Tensor, rows: Ready, frame: Frame
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all pairs that can be among the k nearest, for each query in the order of the rows.

    They are numbers of queries and numbers of rows, at most about ``PAIRS`` at once. ``squared``
    (n, k) are the squared distances to beat, ∞ to begin with.
    """
    q, k = _scale(queries, frame), squared.shape[1]
    norm = q.square().sum(1, keepdim=True)
    slack = 2 * frame.error * norm + 1 / _FAR
    # k values that are, one by one, not below the k least true ones
    upper = (squared.sqrt() / frame.scale).square().to(q) * (0.5 + 1e-6) - norm / 2
    q = torch.cat([-q, torch.ones_like(norm)], dim=1)
    run = rows.m.shape[0] // rows.peak.shape[0]
    tile = q.new_empty(q.shape[0] * (ROWS // run or 1) * run)
    found = []
    start = 0
    for m, peak in zip(rows.m.split(ROWS // run * run), rows.peak.split(ROWS // run), strict=True):
        values = tile[: q.shape[0] * m.shape[0]].view(q.shape[0], -1)
        torch.mm(q, m.T, out=values)  # into a tensor: autocast leaves its precision alone
        low = values.unflatten(1, (-1, run)).amin(2)
        upper = torch.cat([upper, low + peak], dim=1).topk(k, largest=False).values
        limit = (upper[:, -1:] + slack).clamp(max=_FAR)
        for i, j, value in _not_above(limit, values.view(-1, run), low):
            found.append((i, j + start, value))
            if sum(i.numel() for i, *_ in found) > PAIRS:
                yield _still_not_above(limit, found)
                found.clear()
        start += m.shape[0]
    if found:
        yield _still_not_above(limit, found)


def _not_above(
    limit: Tensor, values: Tensor, low: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Return the pairs (query, place in the tile) whose value is not above the query's limit."""
    found = (low <= limit).nonzero(as_tuple=True)
    for i, run in zip(*(t.split(PAIRS // values.shape[1]) for t in found), strict=True):
        inside = values[i * low.shape[1] + run]
        which, place = (inside <= limit[i]).nonzero(as_tuple=True)
        yield i[which], run[which] * values.shape[1] + place, inside[which, place]


def _still_not_above(
    limit: Tensor, found: list[tuple[Tensor, Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Join pairs, without those that a lower limit has ruled out since."""
    i, j, value = (torch.cat(parts) for parts in zip(*found, strict=True))
    stays = value <= limit[i, 0]
    return i[stays], j[stays]


def _scale(x: Tensor, frame: Frame) -> Tensor:
    return ((x.to(frame.centre.dtype) - frame.centre) / frame.scale).to(frame.dtype)


def _product_dtype(h: int) -> torch.dtype:
    """Return float32, or float64 where that is too coarse or PyTorch may round products further."""
    try:
        whole = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # no answer where the setting was made for one kind of device only
        whole = False
    return torch.float32 if whole and h < 100_000 else torch.float64
