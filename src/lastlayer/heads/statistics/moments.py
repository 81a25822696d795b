"""What a batch adds to class statistics: its classes, their sums, its scatter, in pieces."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lastlayer.core.blas import add_symmetric

_ROOM = {"cpu": 16 << 20, "cuda": 1 << 28}  # bytes of a piece in float64
_CACHE = 1 << 22  # bytes that stay in the cache from one pass to the next
_CANCELLED = 0.01  # of a sum of squares: less of it that is left has lost digits
_SLIM = 8  # a product is slim if one side is this many times shorter than the features
_BLOCKS, _BLOCK = 4, 512  # of a symmetric product on a GPU: how many, and the least features of one
_AHEAD = 2  # pieces on their way to a GPU
TINY = 1e-200  # in place of a count of 0 where it divides what is 0 as well
_LOCAL = threading.local()


class Groups(NamedTuple):
    """Which rows of a batch belong to which class."""

    classes: Tensor  # (k,) classes, each once; some may be without a row
    place: Tensor  # (n,) which of these a row is of
    size: Tensor  # (k,) float64: how many rows each has, or what they weigh together
    whole: bool  # whether the classes are all there are, in their order
    weight: Tensor | None = None  # (n,) float64 what a row weighs; None: 1


def group(y: Tensor, n_classes: int, weight: Tensor | None = None) -> Groups:
    """Return the classes of a batch: all known ones if these are fewer than rows, else its own."""
    if n_classes <= y.numel():
        size = torch.zeros(n_classes, dtype=torch.float64, device=y.device)
        size.index_add_(0, y, size.new_ones(1).expand(y.numel()) if weight is None else weight)
        return Groups(torch.arange(n_classes, device=y.device), y, size, whole=True, weight=weight)
    classes, place, size = torch.unique(y, return_inverse=True, return_counts=True)
    size = size.to(torch.float64)
    if weight is not None:
        size = torch.zeros_like(size).index_add_(0, place, weight)
    return Groups(classes, place, size, whole=False, weight=weight)


def sums(rows: Tensor, groups: Groups, norms: Tensor | None = None) -> Tensor:
    """Add up the rows (n, h) of each class, times their weights, in float64 (k, h).

    On a CPU they are widened part by part, so there may be any number of them, and their norms are
    written to ``norms`` (n,) on the way.
    """
    k, (n, h) = groups.classes.numel(), rows.shape
    if not rows.is_cpu and _SLIM * k <= h:
        # A GPU adds to few rows slowly, one addition after the other; a slim product costs little.
        chosen = rows.new_zeros(k, n, dtype=torch.float64)
        ones = groups.place.new_ones(1, n) if groups.weight is None else groups.weight[None]
        return chosen.scatter_(0, groups.place[None], ones.to(chosen)) @ widened(rows)
    total = room("sums", k, rows).zero_()
    lengths = rows.new_empty(n, 0) if norms is None else norms
    weights = rows.new_empty(n, 0) if groups.weight is None else groups.weight[:, None]
    for part, where, length, weight in in_cache(rows, groups.place, lengths, weights):
        wide = widened(part)
        total.index_add_(0, where, wide if groups.weight is None else wide * weight)
        if norms is not None:
            torch.linalg.vector_norm(wide, dim=1, out=length)
    return total


def widened(rows: Tensor) -> Tensor:
    """Return rows in float64: themselves, or a copy in the workspace until the next call."""
    return rows if rows.dtype == torch.float64 else room("rows", len(rows), rows).copy_(rows)


def alone_in_class(groups: Groups) -> Tensor | None:
    """Return the rows that are the only ones of their class, by class, if most rows are."""
    half, alone = groups.place.numel() // 2, groups.size == 1
    if len(alone) <= half or int(alone.sum()) <= half:
        return None
    row = torch.empty_like(groups.classes)
    row[groups.place] = torch.arange(groups.place.numel(), device=row.device)
    return row[alone]


def chosen(rows: Tensor, which: Tensor, out: Tensor) -> Tensor:
    """Copy some rows into room for them in float64."""
    if rows.dtype == out.dtype:
        return torch.index_select(rows, 0, which, out=out)
    return out.copy_(rows[which])


def measured_from(
    rows: Tensor, centre: Tensor, groups: Groups, out: Tensor | None = None
) -> Tensor:
    """Measure rows (n, h) from the centres (k, h) of their classes, in the workspace."""
    out = room("rows", len(rows), rows) if out is None else out
    for part, where, d in in_cache(rows, groups.place, out):
        torch.sub(part, torch.index_select(centre, 0, where, out=d), out=d)
    return out


def spread_within(rows: Tensor, own: Tensor, groups: Groups, norms: Tensor | None) -> Tensor:
    """Return Σ ‖z − own‖² (k,) of the rows of each class from their mean.

    Where their norms are known it is Σ ‖z‖² − k ‖own‖², but for classes where digits would cancel.
    """
    place, size = groups.place, groups.size
    weight = size.new_ones(1).expand(len(rows)) if groups.weight is None else groups.weight
    if norms is None:
        squares = squared_distances(rows, own, place)
        return torch.zeros_like(size).index_add_(0, place, squares * weight)
    whole = torch.zeros_like(size).index_add_(0, place, norms.square() * weight)
    found: Tensor = whole - size * torch.linalg.vector_norm(own, dim=1).square_()
    several = size > (1 if groups.weight is None else 0)
    found.masked_fill_(~several, 0)
    doubtful = (found < _CANCELLED * whole) & several
    if bool(doubtful.any()):
        found.masked_fill_(doubtful, 0)
        for part, where, heavy in in_cache(rows, place, weight):
            which = doubtful[where].nonzero().flatten()
            squares = squared_distances(part[which], own, where[which])
            found.index_add_(0, where[which], squares * heavy[which])
    return found


def squared_distances(rows: Tensor, centre: Tensor, place: Tensor) -> Tensor:
    """Return the squared distance (n,) of each row from the centre of its class."""
    squares = rows.new_empty(len(rows), dtype=torch.float64)
    for part, where, out in in_cache(rows, place, squares):
        d = torch.index_select(centre, 0, where, out=room("parts", len(part), rows))
        torch.linalg.vector_norm(torch.sub(part, d, out=d), dim=1, out=out)
    return squares.square_()


def in_cache(rows: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors of as many rows so that a part stays in the cache from one step to the next.

    Nor do steps that widen a part then take much memory. On a GPU the whole is one part.
    """
    size = max(_CACHE // (8 * rows.shape[1]), 1) if rows.is_cpu else max(len(rows), 1)
    return zip(*(t.split(size) for t in (rows, *others)), strict=True)


def room(name: str, n: int, like: Tensor) -> Tensor:
    """Return room for (n, h) in float64, reused for each name, because fresh memory is slow."""
    h = like.shape[1]
    if not like.is_cpu:
        return like.new_empty(n, h, dtype=torch.float64)
    rooms: dict[str, Tensor] = _LOCAL.__dict__.setdefault("rooms", {})
    if name not in rooms or rooms[name].numel() < n * h:
        rooms[name] = torch.empty(n * h, dtype=torch.float64)
    return rooms[name][: n * h].view(n, h)


def rows_at_once(h: int, device: torch.device) -> int:
    """Return how many rows of h features a piece may have."""
    return max(_ROOM.get(device.type, 1 << 28) // (8 * h), 1)


def pieces(batch: Sequence[Tensor], device: torch.device, most: int) -> Iterator[Sequence[Tensor]]:
    """Cut the rows, labels and weights of a batch into even pieces of at most that many rows.

    They are brought to a device.
    """
    n = len(batch[0])
    size = -(-n // -(-n // most)) if n else 1
    parts = zip(*(t.split(size) for t in batch), strict=True)
    return parts if batch[0].device == device else _moved(parts, device)


def _moved(parts: Iterator[Sequence[Tensor]], device: torch.device) -> Iterator[Sequence[Tensor]]:
    """Bring pieces to a device; to a GPU while it works on the one before, through pinned memory.

    At most a few are on the device at a time, so the data may be larger than its memory.
    """
    if device.type != "cuda":
        yield from ([tensor.to(device) for tensor in part] for part in parts)
        return
    aside = torch.cuda.Stream(device)
    coming: deque[tuple[list[Tensor], torch.cuda.Event]] = deque()
    done: deque[torch.cuda.Event] = deque()
    for z, *others in parts:
        if len(done) >= _AHEAD:
            done.popleft().synchronize()
        with torch.cuda.stream(aside):
            source = z if z.is_pinned() else z.pin_memory()
            moved = [t.to(device, non_blocking=True) for t in (source, *others)]
            coming.append((moved, aside.record_event()))
        if len(coming) == _AHEAD:
            yield _arrived(*coming.popleft())
            done.append(torch.cuda.current_stream(device).record_event())
    for one in coming:
        yield _arrived(*one)


def _arrived(moved: list[Tensor], when: torch.cuda.Event) -> list[Tensor]:
    here = torch.cuda.current_stream(moved[0].device)
    here.wait_event(when)
    for tensor in moved:
        tensor.record_stream(here)
    return moved


def add_gram(scatter: Tensor, rows: Tensor, sign: int = 1) -> None:
    """Add ±rowsᵀ rows to the lower triangle of ``scatter`` (h, h), in place.

    PyTorch has no symmetric product for a GPU: there, four blocks of rows up to the diagonal make
    5/8 of the whole.
    """
    if scatter.is_cpu:
        add_symmetric(scatter, rows, sign)
        return
    h = rows.shape[1]
    size = max(-(-h // _BLOCKS), _BLOCK)
    for start in range(0, h, size):
        stop = min(start + size, h)
        scatter[start:stop, :stop].addmm_(rows[:, start:stop].mT, rows[:, :stop], alpha=sign)


def running_deviations(z: Tensor, groups: Groups, before: Tensor, mean: Tensor) -> Tensor:
    """Return v_t = z_t − the mean of its class over all samples before t, for a whole batch.

    The running means are one cumulative sum per class: sort by class, sum, and subtract each
    class's start. Before a class's first sample the mean is zero, so that sample stays as it is.
    Each class had so many samples ``before`` (k,), of this ``mean`` (k, h).
    """
    by_class = torch.argsort(groups.place, stable=True)
    place = groups.place[by_class]
    d = measured_from(z, mean, groups)[by_class]
    running = d.cumsum(dim=0) - d
    size = groups.size.to(torch.int64)
    start = (size.cumsum(dim=0) - size)[place]
    earlier = before[place] + torch.arange(len(place), device=place.device) - start
    running = (running - running[start]) / earlier.clamp(min=1)[:, None]
    return torch.empty_like(d).index_copy_(0, by_class, d - running)
