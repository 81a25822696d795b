"""Exact nearest neighbours: bounds rule most rows out, exact distances decide among the rest.

Distances are computed from the differences, in float64; at equal distance the earlier row is
nearer. So the result does not depend on how the work is cut up, nor on an offset of the features.

For a query q and rows m, centred and scaled, ½‖m‖² − q·m orders the rows as their distances to q
do. A tile of these bounds comes from one matrix product, whose rounding error is bounded. The rows
are taken in short runs: only one whose least value is not above the k-th best is looked at again.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lastlayer.core.threads import even_size, map_in_threads, thread_count
from lastlayer.errors import DataError
from lastlayer.heads.neighbours.stored_rows import Memory

TILE = 1 << 22  # elements of the largest array made on the way
QUERIES, ROWS = 1024, 2048  # of one tile
PAIRS = 1 << 15  # pairs of a query and a row that are handled at once
_RUN = 64  # rows that are first looked at as one
_FAR = 1e30  # beyond every value of a tile
FEW = 4  # queries for which a pass over the rows each is sooner done than a tile is prepared
_MOST = 4096  # rows that may be looked at again


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
