"""Exact class statistics of a stream: counts, means and within-class scatter, kept centred."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor

from lastlayer.core.packed import add_lower, lower_copy, lower_zeros, symmetric
from lastlayer.core.tensors import are_usable, are_whole, bad_features
from lastlayer.errors import OptionError
from lastlayer.heads.shared_module import Precise
from lastlayer.heads.statistics.moments import (
    TINY,
    add_gram,
)
from lastlayer.heads.statistics.possible import (
    check_possible,
    check_precision,
    check_whole_classes,
    slack_of,
)
from lastlayer.heads.statistics.updating import update, wear_down
from lastlayer.heads.undo import Log

Scatter = Literal["none", "pooled", "per_class", "running"]
_EPS = torch.finfo(torch.float64).eps
GATHERED, GATHERED_BYTES = 4096, 8 << 20  # rows of small batches that wait, at most


class ClassStatistics(Precise):
    """What mean and slda know about their data, in float64, whatever its order and batches.

    A batch update in the manner of Chan, Golub and LeVeque: samples are measured from means, so
    that features far from zero lose no digits. Two statistics can be added, and data removed
    again. Rows of small batches are copied and wait; ``fold`` adds them together. Changes are made
    in place, and can be undone where they are part of an ``AllOrNothing`` block.

    Of the scatter, "none" keeps only the sum of squared distances for each class, "pooled" one
    (h, h) over all classes, "per_class" one for each (n_classes · h² · 8 bytes), and "running" the
    one of the paper's code, Σ t/(t+1) · v vᵀ, v from the mean of its class before sample t.
    """

    symmetric = ("scatter",)
    count: Tensor  # (n_classes,) how many samples, or what they weigh together
    mean: Tensor  # (n_classes, h); zero for a class without data
    scatter: Tensor  # (h, h), (n_classes, h, h) or empty: lower triangle of Σ (z − μ_y)(z − μ_y)ᵀ
    spread: Tensor  # (n_classes,) where there is no scatter: Σ ‖z − μ_y‖²
    weighted: Tensor  # () bool: whether some weights were no whole numbers
    wear: Tensor  # () what rounding may have done so far, squared: to the scatter, or to a mean

    def __init__(self, in_features: int, n_classes: int, scatter: Scatter) -> None:
        super().__init__()
        h = in_features
        shape = {"none": (0, 0), "per_class": (n_classes, h, h)}.get(scatter, (h, h))
        self.kind: Scatter = scatter
        self._waiting = 0  # rows that have come and are not folded in
        self._room: WaitingRows | None = None  # where they are
        self._other_room: tuple[int, WaitingRows | None] = 0, None  # by which change it was left
        self.log = Log()
        self.second: Tensor | None = None  # memory that the next change may write its scatter to
        self.register_buffer("count", torch.zeros(n_classes, dtype=torch.float64))
        try:
            self.register_buffer("mean", torch.zeros(n_classes, h, dtype=torch.float64))
            self.register_buffer("scatter", lower_zeros(shape))
        except (RuntimeError, TypeError, OverflowError, MemoryError):
            raise OptionError(
                f"statistics of {n_classes} classes of {h} features do not fit into memory"
            ) from None
        if scatter == "none":
            self.register_buffer("spread", torch.zeros(n_classes, dtype=torch.float64))
        self.register_buffer("weighted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("wear", torch.zeros((), dtype=torch.float64))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle, with all waiting rows folded in."""
        self.fold()
        return {**self.__dict__, "_room": None, "_other_room": (0, None), "second": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy, which takes no more memory for what is above a diagonal."""
        own = self.__getstate__()
        scatter = self.held("scatter")
        if scatter.is_cpu:
            memo[id(scatter)] = lower_copy(scatter)
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__dict__.update(deepcopy(own, memo))
        return made

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.fold()
        self._room = self.second = None
        self._other_room = 0, None
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, *args: Any) -> None:
        self.fold()
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._waiting, self.second = 0, None
        super()._load_from_state_dict(*args)

    @property
    def waits(self) -> bool:
        """Whether rows have come that are not folded in."""
        return self._waiting > 0

    @property
    def total(self) -> float:
        """The number of samples in the statistics, or what they weigh together."""
        return float(self.count.sum())

    def pooled_scatter(self) -> Tensor:
        """Return the within-class scatter (h, h) of all classes together."""
        lower = self.scatter.sum(dim=0) if self.kind == "per_class" else self.scatter
        return symmetric(lower)

    def overall_mean(self) -> Tensor:
        """Return the mean (h,) of all samples."""
        return (self.count / (self.total or 1.0)) @ self.mean

    def rounding(self) -> float:
        """Return the deviation that rounding could cause: a smaller difference counts as none."""
        largest = float(self.mean.abs().max())
        worn = math.sqrt(float(self.wear)) / (self.total or 1.0)
        return max(self.total * _EPS * largest, math.sqrt(worn))

    def grow(self, n_classes: int) -> None:
        """Make room for more classes."""
        more = {"none": ["spread"], "per_class": ["scatter"]}.get(self.kind, [])
        self.add_rows(n_classes, "count", "mean", *more)

    def add(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """Add a batch; a small one waits for others, unless its rows weigh otherwise than 1."""
        if weight is not None:
            self.weighted = self.weighted | ~are_whole(weight)
        elif self.wait(z, y):
            return
        self.fold()
        if weight is not None or not self.wait(z, y):
            look = z.is_cpu or z.device != self.device
            update(self, z, y, 1, weight=weight, look=look)

    def wait(self, z: Tensor, y: Tensor) -> bool:
        """Let a batch wait, if it is small and there is room; return whether it does."""
        if self._room is None:
            if 2 * y.numel() > most_waiting(self.held("mean").shape[1]):
                return False
            self._room = WaitingRows(self.held("mean"))
        end = self._room.put(self._waiting, z, y)
        if end:
            self.__dict__["_waiting"] = end  # nn.Module's way takes longer than the copy
        return end > 0

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
        update(self, room.z[:n], room.y[:n], 1)

    def remove(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """Remove a batch, as if it had never been added; after an error the statistics are torn."""
        self.fold()
        if not are_usable(z):
            raise bad_features(z)
        check_whole_classes(z, y, self.count, self.mean, self.rounding(), weight)
        least = slack_of(self, z)
        update(self, z, y, -1, weight=weight)
        check_possible(self, y, least)
        self._clear_rounding()
        check_precision(self)

    def remove_class(self, y: int) -> None:
        """Remove a whole class; its own scatter must be known."""
        self.fold()
        gone = torch.tensor([y], device=self.device)
        self.log.overwrite(self.count, gone, torch.zeros_like(self.count[gone]))
        self._clear_rounding()

    def merge(self, other: "ClassStatistics") -> "ClassStatistics":
        """Return the statistics of both streams together."""
        other.fold()
        merged, more = deepcopy(self), other
        n = max(self.count.numel(), other.count.numel())
        merged.grow(n)
        if more.count.numel() < n:
            more = deepcopy(other)
            more.grow(n)
        both = merged.count + more.count
        share = more.count / both.clamp(min=TINY)
        step = more.mean - merged.mean  # the mean of a class without data is zero
        merged.mean.addcmul_(step, share[:, None])
        between = step.mul_((merged.count * share).sqrt()[:, None])
        if self.kind == "pooled":
            add_lower(merged.scatter, more.scatter)
            add_gram(merged.scatter, between)
        elif self.kind == "per_class":
            merged.scatter += more.scatter + between[:, :, None] * between[:, None, :]
        else:
            merged.spread += more.spread + between.square_().sum(dim=1)
        merged.count, merged.weighted = both, merged.weighted | more.weighted
        merged.wear += more.wear
        wear_down(merged, merged.squares(), merged.mean)
        return merged

    def rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        """Number classes and columns anew; see ``Head._rearrange``."""
        self.fold()
        self.count, self.mean = self.count[classes], self.mean[classes]
        if self.kind == "none":
            self.spread = self.spread[classes]
        elif self.kind == "per_class":
            self.scatter = self.scatter[classes]
        if columns is not None:
            self.mean = self.mean[:, columns]
            if self.kind != "none":
                # Half of it is kept, and columns may move to the other half.
                self.scatter = symmetric(self.scatter)[..., columns, :][..., columns]

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.held("mean").device

    def held(self, name: str) -> Tensor:
        """Return a buffer as it is, without the waiting rows."""
        return cast(Tensor, self._buffers[name])

    def drop_learning(self) -> None:
        """Drop the scatter."""
        self._buffers["scatter"] = self.held("scatter").new_zeros(0, 0)
        self.second = None

    def squares(self) -> Tensor:
        """Return Σ ‖z − μ_y‖² over all samples."""
        if self.kind == "none":
            return self.spread.sum()
        return self.scatter.diagonal(dim1=-2, dim2=-1).sum()

    def about_zero(self) -> tuple[float, float]:
        """Return how many samples there are, and Σ ‖z‖² over them, those that wait among them."""
        waiting = self._room.z[: self._waiting] if self._room is not None else self.mean[:0]
        lengths = self.mean.square().sum(dim=1)
        squares = self.count @ lengths + self.squares() + waiting.square().sum()
        return float(self.count.sum()) + self._waiting, float(squares)

    def _clear_rounding(self) -> None:
        """Reset classes without data to zero, and the scatter of those with a single sample."""
        gone = (self.count == 0).nonzero().flatten()
        self.log.overwrite(self.mean, gone, torch.zeros_like(self.mean[gone]))
        # One sample has no scatter; two that weigh a half each may have some.
        few = self.count == 0 if bool(self.weighted) else self.count <= 1
        alone = few.nonzero().flatten()
        if self.kind in ("none", "per_class"):
            own = self.spread if self.kind == "none" else self.scatter
            self.log.overwrite(own, alone, torch.zeros_like(own[alone]))
        elif bool(few.all()):
            self.scatter, self.second = torch.zeros_like(self.scatter), None
        if bool(few.all()):
            self.wear = torch.zeros_like(self.wear)
        if not bool(self.count.any()):
            self.weighted = torch.zeros_like(self.weighted)


def most_waiting(h: int) -> int:
    """Return how many rows of h features wait at most; a batch of more than half does not."""
    return max(1, min(GATHERED, GATHERED_BYTES // (8 * h)))


class WaitingRows:
    """Memory for rows as wide as others, and their labels; the owner knows how many there are."""

    def __init__(self, like: Tensor) -> None:
        self.most = most_waiting(like.shape[1])
        with torch.inference_mode(False):
            self.z = like.new_empty(self.most, like.shape[1])
            self.y = like.new_empty(self.most, dtype=torch.int64)
        # By numpy a small copy takes a fraction of the time that torch needs to begin one.
        self._views: tuple[Any, Any] | None = None
        if like.is_cpu:
            self._views = self.z.numpy(), self.y.numpy()

    def put(self, begin: int, z: Tensor, y: Tensor) -> int:
        """Copy a batch behind the first rows; return where it ends, or 0 if it does not fit."""
        n = y.numel()
        end = begin + n
        if 2 * n > self.most or end > self.most:
            return 0
        if self._views is not None and z.is_cpu and z.dtype != torch.bfloat16:
            self._views[0][begin:end] = z.numpy()
            self._views[1][begin:end] = y.numpy()
        else:
            self.z[begin:end] = z
            self.y[begin:end] = y
        return end
