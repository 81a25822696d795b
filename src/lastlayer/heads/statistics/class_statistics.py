"""Exact class statistics of a stream: counts, means and within-class scatter, kept centred."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, NamedTuple, Self, cast

import torch
from torch import Tensor

from lastlayer.errors import DataError, OptionError
from lastlayer.heads.finite import LARGEST, are_usable, bad_features
from lastlayer.heads.resizable import Resizable
from lastlayer.heads.statistics.moments import (
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
    symmetric,
)
from lastlayer.heads.statistics.possible import (
    check_counts,
    check_scatter,
    check_spread,
    check_whole_classes,
    slack,
)
from lastlayer.heads.undo import Log

Scatter = Literal["none", "pooled", "per_class", "running"]
GATHERED, GATHERED_BYTES = 4096, 8 << 20  # rows of small batches that wait, at most
MOST_SUMMED = 1 << 16  # rows of a batch that are added up before means change
PRECISION = 1e-6  # how wrong, beside the spread of the data that stay, forgetting may leave them
IN_PLACE = frozenset(["cpu"])  # where rows are overwritten; elsewhere new ones take fewer steps
_SECOND = 1 << 23  # numbers of a scatter up to which the memory of its copy is kept for the next
_EPS = torch.finfo(torch.float64).eps


class ClassStatistics(Resizable):
    """What mean and slda know about their data, in float64, whatever its order and batches.

    A batch update in the manner of Chan, Golub and LeVeque: samples are measured from means, so
    that features far from zero lose no digits. Two statistics can be added, and data removed
    again. Rows of small batches are copied and wait; ``fold`` adds them together. Changes are made
    in place, and can be undone where they are part of an ``AllOrNothing`` block.

    Args:
        in_features: the size h of a feature vector.
        n_classes: classes known beforehand.
        scatter: keep "none" but the sum of squared distances for each class, one (h, h) "pooled"
            over all classes or one "per_class" (n_classes · h² · 8 bytes), or the "running" one of
            the paper's code, Σ t/(t+1) · v vᵀ, v from the mean of its class before sample t.
    """

    count: Tensor  # (n_classes,) int64
    mean: Tensor  # (n_classes, h); zero for a class without data
    scatter: (
        Tensor  # (h, h), (n_classes, h, h) or empty: the lower triangle of Σ (z − μ_y)(z − μ_y)ᵀ
    )
    spread: Tensor  # (n_classes,) where there is no scatter: Σ ‖z − μ_y‖²; NaN where unknown
    wear: Tensor  # () what rounding may have done so far, squared: to the scatter, or to a mean

    def __init__(self, in_features: int, n_classes: int, scatter: Scatter) -> None:
        super().__init__()
        h = in_features
        shape = {"none": (0, 0), "per_class": (n_classes, h, h)}.get(scatter, (h, h))
        self.kind: Scatter = scatter
        self._waiting = 0  # rows that have come and are not folded in
        self._room: tuple[Any, ...] | None = None  # (capacity, h) float64, and their labels
        self._other_room: tuple[int, Any] = 0, None  # and in which change it was left
        self.log = Log()
        self._second: Tensor | None = None  # memory that the next change may write its scatter to
        self.register_buffer("count", torch.zeros(n_classes, dtype=torch.int64))
        try:
            self.register_buffer("mean", torch.zeros(n_classes, h, dtype=torch.float64))
            self.register_buffer("scatter", torch.zeros(shape, dtype=torch.float64))
        except (RuntimeError, TypeError, OverflowError, MemoryError):
            raise OptionError(
                f"expected statistics that fit into memory, got {n_classes} classes of {h} features"
            ) from None
        if scatter == "none":
            self.register_buffer("spread", torch.zeros(n_classes, dtype=torch.float64))
        self.register_buffer("wear", torch.zeros((), dtype=torch.float64))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle, with all waiting rows folded in."""
        self.fold()
        return {**self.__dict__, "_room": None, "_other_room": (0, None), "_second": None}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow to another device, but stay in float64: ``head.float()`` loses nothing."""
        self.fold()
        self._room = self._second = None
        self._other_room = 0, None
        super()._apply(lambda t: t.to(fn(t.flatten()[:0]).device), recurse)  # type: ignore[no-untyped-call]
        return self

    def _save_to_state_dict(self, *args: Any) -> None:
        self.fold()
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load a state; one of version 0.1 has neither spread nor wear."""
        self._waiting, self._second = 0, None
        if (mean := state.get(prefix + "mean")) is not None:
            missing = {"wear": self._held("wear").new_zeros(())}
            if self.kind == "none":
                few = state[prefix + "count"] <= 1 if prefix + "count" in state else False
                unknown = mean.new_full(mean.shape[:1], torch.nan)
                missing["spread"] = unknown.masked_fill(torch.as_tensor(few), 0)
            for name, value in missing.items():
                state.setdefault(prefix + name, value)
        super()._load_from_state_dict(state, prefix, *args)

    @property
    def waits(self) -> bool:
        """Whether rows have come that are not folded in."""
        return self._waiting > 0

    @property
    def total(self) -> int:
        """The number of samples in the statistics."""
        return int(self.count.sum())

    def pooled_scatter(self) -> Tensor:
        """Return the within-class scatter (h, h) of all classes together."""
        lower = self.scatter.sum(dim=0) if self.kind == "per_class" else self.scatter
        return symmetric(lower)

    def overall_mean(self) -> Tensor:
        """Return the mean (h,) of all samples."""
        weight = self.count.to(self.mean.dtype) / max(self.total, 1)
        return weight @ self.mean

    def rounding(self) -> float:
        """Return the deviation that rounding could cause: a smaller difference counts as none."""
        largest = float(self.mean.abs().max())
        worn = math.sqrt(float(self.wear)) / max(self.total, 1)
        return max(self.total * _EPS * largest, math.sqrt(worn))

    def grow(self, n_classes: int) -> None:
        """Make room for more classes."""
        names = ["count", "mean", *(["spread"] if self.kind == "none" else [])]
        for name in (*names, *(["scatter"] if self.kind == "per_class" else [])):
            old = self._held(name)
            more = old.new_zeros(n_classes - old.shape[0], *old.shape[1:])
            self._buffers[name] = torch.cat([old, more])

    def add(self, z: Tensor, y: Tensor) -> None:
        """Add a batch; a small one waits for others."""
        if not self.wait(z, y):
            self.fold()
            if not self.wait(z, y):
                self._update(z, y, 1, look=z.is_cpu or z.device != self._device)

    def wait(self, z: Tensor, y: Tensor) -> bool:
        """Let a batch wait, if it is small and there is room; return whether it does."""
        n, begin = y.numel(), self._waiting
        if self._room is None:
            if 2 * n > self._most():
                return False
            self._room = self._new_room()
        rows, labels, *views = self._room
        end, most = begin + n, labels.numel()
        if 2 * n > most or end > most:
            return False
        if views and z.is_cpu and z.dtype != torch.bfloat16:
            # numpy: a small copy takes a fraction of the time that torch needs to begin one
            views[0][begin:end] = z.numpy()
            views[1][begin:end] = y.numpy()
        else:
            rows[begin:end] = z
            labels[begin:end] = y
        self.__dict__["_waiting"] = end  # nn.Module's way takes longer than the copy
        return True

    def _new_room(self) -> tuple[Any, ...]:
        """Make room for rows that wait and their labels, with views of both for numpy."""
        with torch.inference_mode(False):
            rows = self._held("mean").new_empty(self._most(), self._held("mean").shape[1])
            labels = self._held("count").new_empty(len(rows))
        return (rows, labels, rows.numpy(), labels.numpy()) if rows.is_cpu else (rows, labels)

    def _most(self) -> int:
        return most_waiting(self._held("mean").shape[1])

    def fold(self) -> None:
        """Fold in the waiting rows."""
        n, room = self._waiting, self._room
        if not n or room is None:
            return
        if self.log.open:
            # The rows may have to wait again: until the change ends, others must not take their
            # place. So two rooms take turns, from change to change: fresh memory is slow.
            left, other = self._other_room
            self._room = other if left != self.log.number else None
            self._other_room = self.log.number, room
        self._waiting = 0
        self._update(room[0][:n], room[1][:n], 1)

    def remove(self, z: Tensor, y: Tensor) -> None:
        """Remove a batch, as if it had never been added; after an error the statistics are torn."""
        self.fold()
        if not are_usable(z):
            raise bad_features(z)
        check_counts(y, self.count)
        check_whole_classes(z, y, self.count, self.mean, self.rounding())
        least = self._slack(z)
        self._update(z, y, -1)
        self._check_possible(y, least)
        self._clear_rounding()
        self._check_precision()

    def _slack(self, z: Tensor) -> Tensor:
        """Return how much of the sums of squares of each class, or () of all, may be rounding."""
        largest = max(float(self.mean.abs().max()), *(float(end.abs()) for end in z.aminmax()))
        away, worn = _EPS * largest, math.sqrt(float(self.wear))
        count = self.count.to(self.mean.dtype)
        if self.kind == "none":  # its wear is that of a mean
            return slack(self.spread, count, away + worn)
        traces = self.scatter.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return slack(traces, count.sum() if self.kind == "pooled" else count, away, worn)

    def _check_possible(self, y: Tensor, least: Tensor) -> None:
        """Refuse the removal if no samples could have the statistics that remain."""
        if self.kind == "none":
            check_spread(self.spread, self.count, least)
        elif self.kind == "pooled":
            classes = int((self.count > 0).sum())
            check_scatter(self.scatter, self.total, classes, float(least))
        else:
            for c in y.unique().tolist():
                left = int(self.count[c])
                check_scatter(self.scatter[c], left, min(left, 1), float(least[c]), c)

    def remove_class(self, y: int) -> None:
        """Remove a whole class; its own scatter must be known."""
        self.fold()
        gone = torch.tensor([y], device=self._device)
        self.log.overwrite(self.count, gone, torch.zeros_like(self.count[gone]))
        self._clear_rounding()

    def merge(self, other: "ClassStatistics") -> "ClassStatistics":
        """Return the statistics of both streams together."""
        other.fold()
        n = max(self.count.numel(), other.count.numel())
        merged = _copy(self, n)
        more = other if other.count.numel() == n else _copy(other, n)
        both = merged.count + more.count
        share = more.count.to(more.mean.dtype) / both.clamp(min=1)
        step = more.mean - merged.mean  # the mean of a class without data is zero
        merged.mean.addcmul_(step, share[:, None])
        between = step.mul_((merged.count * share).sqrt()[:, None])
        if self.kind == "pooled":
            merged.scatter += more.scatter
            add_gram(merged.scatter, between)
        elif self.kind == "per_class":
            merged.scatter += more.scatter + between[:, :, None] * between[:, None, :]
        else:
            merged.spread += more.spread + between.square_().sum(dim=1)
        merged.count = both
        merged.wear += more.wear
        merged._wear_down(merged._spread(), merged.mean)
        return merged

    @property
    def _device(self) -> torch.device:
        return self._held("mean").device

    def _held(self, name: str) -> Tensor:
        """Return a buffer as it is, without the waiting rows."""
        return cast(Tensor, self._buffers[name])

    def _update(self, z: Tensor, y: Tensor, sign: int, *, look: bool = False) -> None:
        """Add or remove a batch, piece by piece, with one matrix product for each.

        Args:
            z: features (n, h).
            y: their classes (n,).
            sign: 1 to add, −1 to remove.
            look: whether the values are not yet known to be finite: they are looked at on the way.
        """
        self._own_scatter()
        most = rows_at_once(z.shape[1], self._device)
        if self.kind == "none" and self._in_place and self.count.numel() <= most:
            most = max(most, MOST_SUMMED)  # sums take rows as they are, and room for classes only
        several = len(z) > most
        afresh = not self._in_place and self.count.numel() <= len(z)
        names = ["mean", "count", *(["spread"] if self.kind == "none" else [])]
        if afresh:  # copies of few rows; a piece that holds every class makes its own
            for name in names if several else names[2:]:
                setattr(self, name, self._held(name).clone())
        if afresh or not several:
            names = []
        names += ["scatter"] if self.kind == "per_class" else []
        if names:  # otherwise the one piece keeps what it overwrites
            own = group(y.to(self._device), self.count.numel()).classes
            for name in names:
                self.log.keep(self._held(name), own)
        finite = torch.ones((), dtype=torch.bool, device=self._device)
        for rows, classes in pieces(z, y, self._device, most):
            largest = self._update_by(rows, classes, sign, log=not (several or afresh))
            if look:  # NaN and infinity show in the extremes; the answer is read once, below
                if largest is None:
                    largest = torch.stack(rows.aminmax()).abs().amax()
                finite &= largest.double() <= LARGEST  # in float32 the limit would be infinite
        if look and not bool(finite) and not are_usable(z):
            raise bad_features(z)

    def _update_by(self, z: Tensor, y: Tensor, sign: int, log: bool) -> Tensor | None:
        """Fold in one piece; return no less than its largest value, or None if that is not known.

        With k samples of a class that had n, m their own mean from its mean, the scatter grows by
        Σ rrᵀ where each sample d from that mean is moved to r = d − (1 − √(n/(n+k)))·m, and shrinks
        by Σ rrᵀ with r = d + (√(n/(n−k)) − 1)·m when they leave; r = d when all do.
        """
        groups = group(y, self.count.numel())
        if self.kind == "pooled":
            self._update_pooled(z, y, groups, sign, log)
            return None
        if self.kind == "none":
            # Asking where digits cancel would make a GPU wait: it needs no norms.
            norms = self.mean.new_empty(len(z)) if self._in_place else None
            change = self._change(z, groups, sign, log, norms)
            self._add_spread(z, change, log, norms)
            self._wear_down(change.n, self._write(change, log), groups.size.amax())
            return None if norms is None else norms.amax()
        change = self._change(z, groups, sign, log)
        self._wear_down(self._add_scatter(z, change), self._write(change, log))
        return None

    def _update_pooled(self, z: Tensor, y: Tensor, groups: Groups, sign: int, log: bool) -> None:
        """Fold in one piece with one product, of rows in any order."""
        moved = rest = room("rows", len(z), z)
        alone = alone_in_class(groups) if sign > 0 and self._in_place else None
        if alone is not None:
            self._add_alone(z, y[alone], alone, moved[: len(alone)], log)
            others = (groups.size > 1)[groups.place].nonzero().flatten()
            z, rest = chosen(z, others, room("others", len(others), z)), moved[len(alone) :]
            groups = group(y[others], self.count.numel())
        if len(rest):
            change = self._change(z, groups, sign, log)
            measured_from(z, change.centre(), groups, out=rest)
            self._write(change, log)
        before = self.scatter.diagonal().sum()
        add_gram(self.scatter, moved, sign)
        self._wear_down(torch.maximum(before, self.scatter.diagonal().sum()), self.mean)

    def _add_alone(self, z: Tensor, y: Tensor, which: Tensor, moved: Tensor, log: bool) -> None:
        """Move means by the only rows of their classes, where m is d: fewer steps, the same rows r.

        Args:
            z: (…, h) the batch.
            y: (a,) different classes.
            which: (a,) the rows of the batch that are theirs.
            moved: (a, h) where r is written.
            log: whether what is overwritten may have to be put back.
        """
        old, before = self._rows_of(y, log), self.count[y]
        n = before.to(old.dtype)[:, None]
        step = chosen(z, which, moved).sub_(old).div_(n + 1)
        if log:
            self.log.keep(self.mean, y, old)
        self.mean.index_add_(0, y, step)
        self._overwrite(self.count, y, before + 1, before, log)
        moved.mul_((n * (n + 1)).sqrt())  # r = √(n/(n+1))·d

    def _change(
        self, z: Tensor, groups: Groups, sign: int, log: bool, norms: Tensor | None = None
    ) -> "_Change":
        """Return how the means of some classes change with their rows, whose norms are noted."""
        afresh = groups.whole and not self._in_place
        before = self.count if afresh else self.count[groups.classes]
        old = self.mean if groups.whole else self._rows_of(groups.classes, log)
        if groups.whole and log:
            self.log.keep(old)
        own = sums(z, groups, norms).div_(groups.size.clamp(min=1)[:, None])
        after = before + sign * groups.size.to(torch.int64)
        n, left = before.to(own.dtype), after.to(own.dtype)
        space = torch.empty_like(own) if afresh else room("centres", len(own), own)
        return _Change(groups, sign, old, own, before, after, n, left, space)

    def _write(self, change: "_Change", log: bool) -> Tensor:
        """Write the new means and counts of the classes that change; return these means."""
        classes, whole = change.groups.classes, change.groups.whole
        share = change.sign * change.groups.size / change.left.clamp(min=1)
        out = self.mean if whole and self._in_place else change.space
        new = torch.lerp(change.old, change.own, share[:, None], out=out)
        if change.sign < 0:
            new.masked_fill_((change.after == 0)[:, None], 0)
        if whole and not self._in_place:
            self.mean, self.count = new, change.after
            return new
        if not whole:
            self._overwrite(self.mean, classes, new, change.old, log)
        self._overwrite(self.count, classes, change.after, change.before, log)
        return new

    def _add_spread(self, z: Tensor, change: "_Change", log: bool, norms: Tensor | None) -> None:
        """Add Σ ‖r‖² of each class: around the rows' own mean, and between that and the old one."""
        groups, n, left = change.groups, change.n, change.left
        more = spread_within(z, change.own, groups, norms)
        step = torch.sub(change.own, change.old, out=change.space)
        weight = groups.size * torch.where(left > 0, n / left.clamp(min=1), 1)
        more += weight * torch.linalg.vector_norm(step, dim=1).square_()
        spread = self.spread[groups.classes]
        self._overwrite(self.spread, groups.classes, spread + change.sign * more, spread, log)

    def _add_scatter(self, z: Tensor, change: "_Change") -> Tensor:
        """Add the products of one piece to a running scatter or to one for each class.

        Return Σ ‖·‖² of what was added or is.
        """
        groups = change.groups
        if self.kind == "running":
            v = running_deviations(z, groups, change.n, change.old)
            t = self.total + torch.arange(len(v), device=v.device, dtype=v.dtype)
            v *= (t / (t + 1)).sqrt()[:, None]
            add_gram(self.scatter, v)
            return self.scatter.diagonal().sum()
        rows = measured_from(z, change.centre(), groups)
        for i, c in enumerate(groups.classes.tolist()):
            own = rows[groups.place == i]
            if len(own):
                add_gram(self.scatter[c], own, change.sign)
        return rows.square().sum()

    @property
    def _in_place(self) -> bool:
        return self._device.type in IN_PLACE

    def _rows_of(self, classes: Tensor, log: bool) -> Tensor:
        """Return the means of some classes; they are logged first if the change may be undone."""
        if log and self.log.open:
            return self.log.copy_of(self.mean, classes)
        out = room("old", classes.numel(), self.mean)
        return torch.index_select(self.mean, 0, classes, out=out)

    def _overwrite(self, tensor: Tensor, rows: Tensor, new: Tensor, old: Tensor, log: bool) -> None:
        """Write some rows in place; ``log`` says whether they are not in the log already."""
        if log:
            self.log.overwrite(tensor, rows, new, old)
        else:
            tensor.index_copy_(0, rows, new)

    def _own_scatter(self) -> None:
        """Let a change write to a copy of the one scatter, and leave the other as it was.

        The two take turns: a copy into fresh memory takes much longer.
        """
        if self.kind not in ("pooled", "running") or not self.log.open or self.log.copied:
            return
        copy = torch.empty_like(self.scatter) if self._second is None else self._second
        copy.copy_(self.scatter)
        self._second = self.scatter if copy.numel() <= _SECOND else None
        self.scatter = copy
        self.log.copied = True

    def _spread(self) -> Tensor:
        """Return Σ ‖z − μ_y‖² over all samples."""
        if self.kind == "none":
            return self.spread.sum()
        return self.scatter.diagonal(dim1=-2, dim2=-1).sum()

    def _wear_down(self, squares: Tensor, mean: Tensor, summed: Tensor | None = None) -> None:
        """Note what rounding may have done: to the scatter, or to a mean where there is none.

        The errors of many updates are independent, so their squares add up; those of a sum of n
        rows come to √n / 6 of one.
        """
        if self.kind == "none":
            more = (_EPS * torch.stack(mean.aminmax()).abs().amax()).square()
            self.wear = self.wear + (more if summed is None else more * (summed / 36).clamp(min=1))
        else:
            self.wear = self.wear + (_EPS * squares).square()

    def _clear_rounding(self) -> None:
        """Reset classes without data to zero, and the scatter of those with a single sample."""
        gone = (self.count == 0).nonzero().flatten()
        self.log.overwrite(self.mean, gone, torch.zeros_like(self.mean[gone]))
        alone = (self.count <= 1).nonzero().flatten()
        if self.kind in ("none", "per_class"):
            own = self.spread if self.kind == "none" else self.scatter
            self.log.overwrite(own, alone, torch.zeros_like(own[alone]))
        elif not bool((self.count > 1).any()):
            self.scatter, self._second = torch.zeros_like(self.scatter), None
        if not bool((self.count > 1).any()):
            self.wear = torch.zeros_like(self.wear)

    def precision(self) -> float:
        """Return how wrong rounding may have made the statistics, relative to the data's spread."""
        count = self.count.to(self.mean.dtype)
        own = self.mean - (self.overall_mean() if int((count > 0).sum()) > 1 else 0)
        between = float((own.square().sum(dim=1) * count).sum())
        wrong = math.sqrt(float(self.wear))
        if self.kind == "none":  # only its means decide
            whole = math.sqrt(between / max(self.total, 1))
        else:
            whole = between + max(float(self._spread()), 0.0)
        return wrong / whole if whole > 0 else float(wrong > 0)

    def _check_precision(self) -> None:
        if (wrong := self.precision()) > PRECISION:
            raise DataError(
                "cannot forget exactly: the data seen were so much larger than what remains that "
                f"rounding is {wrong:.0e} of it, and at most {PRECISION:.0e} is allowed; make a "
                "new head and let it observe what remains"
            )


def most_waiting(h: int) -> int:
    """Return how many rows of h features wait at most; a batch of more than half does not."""
    return max(1, min(GATHERED, GATHERED_BYTES // (8 * h)))


class _Change(NamedTuple):
    """How the means of some classes change when rows of theirs come or go."""

    groups: Groups
    sign: int  # 1 if they come, −1 if they go
    old: Tensor  # (k, h) the means before
    own: Tensor  # (k, h) the means of these rows
    before: Tensor  # (k,) int64 samples before
    after: Tensor  # (k,) int64
    n: Tensor  # (k,) before and after in float64
    left: Tensor
    space: Tensor  # (k, h) to work in

    def centre(self) -> Tensor:
        """Return what the rows are measured from, in the space to work in: old + move·m."""
        move = 1 - (self.n / self.left.clamp(min=1)).sqrt()
        if self.sign < 0:
            move = move.masked_fill(self.after == 0, 0)
        return torch.lerp(self.old, self.own, move[:, None], out=self.space)


def _copy(statistics: ClassStatistics, n_classes: int) -> ClassStatistics:
    copy = deepcopy(statistics)
    if n_classes > copy.count.numel():
        copy.grow(n_classes)
    return copy
