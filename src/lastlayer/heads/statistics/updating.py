"""How a batch changes class statistics: piece by piece, in place where memory is the CPU's.

Rows that are overwritten are logged first where the change may have to be undone.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lastlayer.core.packed import lower_copy
from lastlayer.core.tensors import LARGEST, are_usable, bad_features
from lastlayer.heads.statistics.moments import (
    TINY,
    Groups,
    add_gram,
    alone_in_class,
    chosen,
    group,
    measured_from,
    pieces,
    room,
    rows_at_once,
    running_deviations,
    spread_within,
    sums,
)
from lastlayer.heads.weights import GONE

if TYPE_CHECKING:
    from lastlayer.heads.statistics.class_statistics import ClassStatistics

MOST_SUMMED = 1 << 16  # rows of a batch that are added up before means change
IN_PLACE = frozenset(["cpu"])  # where rows are overwritten; elsewhere new ones take fewer steps
_SECOND = 1 << 23  # numbers of a scatter up to which the memory of its copy is kept for the next
_EPS = torch.finfo(torch.float64).eps


class Change(NamedTuple):
    """How the means of some classes change when rows of theirs come or go."""

    groups: Groups
    sign: int  # 1 if they come, −1 if they go
    old: Tensor  # (k, h) the means before
    own: Tensor  # (k, h) the means of these rows
    n: Tensor  # (k,) samples before
    left: Tensor  # (k,) and after
    space: Tensor  # (k, h) to work in

    def centre(self) -> Tensor:
        """Return what the rows are measured from, in the space to work in: old + move·m."""
        move = 1 - (self.n / self.left.clamp(min=TINY)).sqrt()
        if self.sign < 0:
            move = move.masked_fill(self.left == 0, 0)
        return torch.lerp(self.old, self.own, move[:, None], out=self.space)


def update(
    s: "ClassStatistics",
    z: Tensor,
    y: Tensor,
    sign: int,
    *,
    weight: Tensor | None = None,
    look: bool = False,
) -> None:
    """Add or remove (``sign`` 1 or −1) a batch, piece by piece, with one matrix product for each.

    Rows weigh ``weight`` (n,), above 0, in float64; None: 1. ``look``: their values are not yet
    known to be finite, and are looked at on the way.
    """
    _own_scatter(s)
    most = rows_at_once(z.shape[1], s.device)
    if s.kind == "none" and _in_place(s) and s.count.numel() <= most:
        most = max(most, MOST_SUMMED)  # sums take rows as they are, and room for classes only
    several = len(z) > most
    afresh = not _in_place(s) and s.count.numel() <= len(z)
    names = ["mean", "count", *(["spread"] if s.kind == "none" else [])]
    if afresh:  # copies of few rows; a piece that holds every class makes its own
        for name in names if several else names[2:]:
            setattr(s, name, s.held(name).clone())
    if afresh or not several:
        names = []
    names += ["scatter"] if s.kind == "per_class" else []
    if names:  # otherwise the one piece keeps what it overwrites
        own = group(y.to(s.device), s.count.numel()).classes
        for name in names:
            s.log.keep(s.held(name), own)
    finite = torch.ones((), dtype=torch.bool, device=s.device)
    for rows, *of in pieces((z, y) if weight is None else (z, y, weight), s.device, most):
        groups = group(of[0], s.count.numel(), *of[1:])
        largest = _update_by(s, rows, groups, sign, log=not (several or afresh))
        if look:  # NaN and infinity show in the extremes; the answer is read once, below
            if largest is None:
                largest = torch.stack(rows.aminmax()).abs().amax()
            finite &= largest.double() <= LARGEST  # in float32 the limit would be infinite
    if look and not bool(finite) and not are_usable(z):
        raise bad_features(z)


def _update_by(
    s: "ClassStatistics", z: Tensor, groups: Groups, sign: int, log: bool
) -> Tensor | None:
    """Fold in one piece; return no less than its largest value, or None if that is not known.

    With k samples of a class that had n, m their own mean from its mean, the scatter grows by
    Σ rrᵀ where each sample d from that mean is moved to r = d − (1 − √(n/(n+k)))·m, and shrinks
    by Σ rrᵀ with r = d + (√(n/(n−k)) − 1)·m when they leave; r = d when all do. Where rows weigh, k
    is what they weigh together, m their weighted mean, and the sum is Σ w rrᵀ.
    """
    if s.kind == "pooled":
        _update_pooled(s, z, groups, sign, log)
        return None
    if s.kind == "none":
        # Asking where digits cancel would make a GPU wait: it needs no norms.
        norms = s.mean.new_empty(len(z)) if _in_place(s) else None
        change = _change(s, z, groups, sign, log, norms)
        _add_spread(s, z, change, log, norms)
        wear_down(s, change.n, _write(s, change, log), groups.size.amax())
        return None if norms is None else norms.amax()
    change = _change(s, z, groups, sign, log)
    wear_down(s, _add_scatter(s, z, change), _write(s, change, log))
    return None


def _update_pooled(s: "ClassStatistics", z: Tensor, groups: Groups, sign: int, log: bool) -> None:
    """Fold in one piece with one product, of rows in any order."""
    moved = rest = room("rows", len(z), z)
    plain = sign > 0 and groups.weight is None and _in_place(s)
    alone = alone_in_class(groups) if plain else None
    if alone is not None:
        y = groups.classes[groups.place]
        _add_alone(s, z, y[alone], alone, moved[: len(alone)], log)
        others = (groups.size > 1)[groups.place].nonzero().flatten()
        z, rest = chosen(z, others, room("others", len(others), z)), moved[len(alone) :]
        groups = group(y[others], s.count.numel())
    if len(rest):
        change = _change(s, z, groups, sign, log)
        measured_from(z, change.centre(), groups, out=rest)
        if groups.weight is not None:
            rest *= groups.weight.sqrt()[:, None]
        _write(s, change, log)
    before = s.scatter.diagonal().sum()
    add_gram(s.scatter, moved, sign)
    wear_down(s, torch.maximum(before, s.scatter.diagonal().sum()), s.mean)


def _add_alone(
    s: "ClassStatistics", z: Tensor, y: Tensor, which: Tensor, moved: Tensor, log: bool
) -> None:
    """Move means by the only rows of their classes, where m is d: fewer steps, the same rows r.

    The rows ``which`` (a,) of the batch are those of the classes y (a,), all different; r is
    written to ``moved`` (a, h). ``log``: what is overwritten may have to be put back.
    """
    old, before = _rows_of(s, y, log), s.count[y]
    n = before[:, None]
    step = chosen(z, which, moved).sub_(old).div_(n + 1)
    if log:
        s.log.keep(s.mean, y, old)
    s.mean.index_add_(0, y, step)
    _overwrite(s, s.count, y, before + 1, before, log)
    moved.mul_((n * (n + 1)).sqrt())  # r = √(n/(n+1))·d


def _change(
    s: "ClassStatistics",
    z: Tensor,
    groups: Groups,
    sign: int,
    log: bool,
    norms: Tensor | None = None,
) -> Change:
    """Return how the means of some classes change with their rows, whose norms are noted."""
    afresh = groups.whole and not _in_place(s)
    n = s.count if afresh else s.count[groups.classes]
    old = s.mean if groups.whole else _rows_of(s, groups.classes, log)
    if groups.whole and log:
        s.log.keep(old)
    own = sums(z, groups, norms).div_(groups.size.clamp(min=TINY)[:, None])
    left = n + sign * groups.size
    if sign < 0:  # weights that are no whole numbers leave rounding
        left.masked_fill_(left <= GONE * n, 0)
    space = torch.empty_like(own) if afresh else room("centres", len(own), own)
    return Change(groups, sign, old, own, n, left, space)


def _write(s: "ClassStatistics", change: Change, log: bool) -> Tensor:
    """Write the new means and counts of the classes that change; return these means."""
    classes, whole = change.groups.classes, change.groups.whole
    share = change.sign * change.groups.size / change.left.clamp(min=TINY)
    out = s.mean if whole and _in_place(s) else change.space
    new = torch.lerp(change.old, change.own, share[:, None], out=out)
    if change.sign < 0:
        new.masked_fill_((change.left == 0)[:, None], 0)
    if whole and not _in_place(s):
        s.mean, s.count = new, change.left
        return new
    if not whole:
        _overwrite(s, s.mean, classes, new, change.old, log)
    _overwrite(s, s.count, classes, change.left, change.n, log)
    return new


def _add_spread(
    s: "ClassStatistics", z: Tensor, change: Change, log: bool, norms: Tensor | None
) -> None:
    """Add Σ ‖r‖² of each class: around the rows' own mean, and between that and the old one."""
    groups, n, left = change.groups, change.n, change.left
    more = spread_within(z, change.own, groups, norms)
    step = torch.sub(change.own, change.old, out=change.space)
    weight = groups.size * torch.where(left > 0, n / left.clamp(min=TINY), 1)
    more += weight * torch.linalg.vector_norm(step, dim=1).square_()
    spread = s.spread[groups.classes]
    _overwrite(s, s.spread, groups.classes, spread + change.sign * more, spread, log)


def _add_scatter(s: "ClassStatistics", z: Tensor, change: Change) -> Tensor:
    """Add the products of one piece to a running scatter or to one for each class.

    Return Σ ‖·‖² of what was added or is.
    """
    groups = change.groups
    if s.kind == "running":
        v = running_deviations(z, groups, change.n, change.old)
        t = s.total + torch.arange(len(v), device=v.device, dtype=v.dtype)
        v *= (t / (t + 1)).sqrt()[:, None]
        add_gram(s.scatter, v)
        return s.scatter.diagonal().sum()
    rows = measured_from(z, change.centre(), groups)
    if groups.weight is not None:
        rows *= groups.weight.sqrt()[:, None]
    for i, c in enumerate(groups.classes.tolist()):
        own = rows[groups.place == i]
        if len(own):
            add_gram(s.scatter[c], own, change.sign)
    return rows.square().sum()


def _rows_of(s: "ClassStatistics", classes: Tensor, log: bool) -> Tensor:
    """Return the means of some classes; they are logged first if the change may be undone."""
    if log and s.log.open:
        return s.log.copy_of(s.mean, classes)
    out = room("old", classes.numel(), s.mean)
    return torch.index_select(s.mean, 0, classes, out=out)


def _overwrite(
    s: "ClassStatistics", tensor: Tensor, rows: Tensor, new: Tensor, old: Tensor, log: bool
) -> None:
    """Write some rows in place; ``log`` says whether they are not in the log already."""
    if log:
        s.log.overwrite(tensor, rows, new, old)
    else:
        tensor.index_copy_(0, rows, new)


def _own_scatter(s: "ClassStatistics") -> None:
    """Let a change write to a copy of the one scatter, and leave the other as it was.

    The two take turns: a copy into fresh memory takes much longer. There is only one of a large
    scatter, and only half of that.
    """
    if s.kind not in ("pooled", "running") or not s.log.open or s.log.copied:
        return
    if s.scatter.numel() > _SECOND and s.scatter.is_cpu:
        s.scatter = lower_copy(s.scatter)
    else:
        copy = torch.empty_like(s.scatter) if s.second is None else s.second
        copy.copy_(s.scatter)
        s.second = s.scatter if copy.numel() <= _SECOND else None
        s.scatter = copy
    s.log.copied = True


def _in_place(s: "ClassStatistics") -> bool:
    return s.device.type in IN_PLACE


def wear_down(
    s: "ClassStatistics", squares: Tensor, mean: Tensor, summed: Tensor | None = None
) -> None:
    """Note what rounding may have done: to the scatter, or to a mean where there is none.

    The errors of many updates are independent, so their squares add up; those of a sum of n
    rows come to √n / 6 of one.
    """
    if s.kind == "none":
        more = (_EPS * torch.stack(mean.aminmax()).abs().amax()).square()
        s.wear = s.wear + (more if summed is None else more * (summed / 36).clamp(min=1))
    else:
        s.wear = s.wear + (_EPS * squares).square()
