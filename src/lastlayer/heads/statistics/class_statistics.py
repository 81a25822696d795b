"""Exact class statistics of a stream: counts, means and within-class scatter, kept centred."""

from collections.abc import Callable
from copy import deepcopy
from typing import Literal, Self

import torch
from torch import Tensor

from lastlayer.errors import DataError
from lastlayer.heads.resizable import Resizable
from lastlayer.heads.statistics.moments import add_gram, first_of_each, moments, pieces, symmetric

Scatter = Literal["none", "pooled", "per_class"]


class ClassStatistics(Resizable):
    """What mean and slda know of their data, in float64, whatever its order and batches.

    A batch update in the manner of Chan, Golub and LeVeque: samples are measured from the means
    so far, so that features far from zero lose no digits. Two statistics can be added, and data
    taken out again.

    Args:
        in_features: the size h of a feature vector.
        n_classes: classes known beforehand.
        scatter: keep none, one (h, h) for all classes, or one for each (n_classes · h² · 8 bytes).
    """

    count: Tensor  # (n_classes,) int64
    mean: Tensor  # (n_classes, h); zero for a class without data
    scatter: (
        Tensor  # (h, h), (n_classes, h, h) or empty: the lower triangle of Σ (z − μ_y)(z − μ_y)ᵀ
    )

    def __init__(self, in_features: int, n_classes: int, scatter: Scatter) -> None:
        super().__init__()
        h = in_features
        shape = {"none": (0, 0), "pooled": (h, h), "per_class": (n_classes, h, h)}[scatter]
        self.kind: Scatter = scatter
        self.register_buffer("count", torch.zeros(n_classes, dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(n_classes, h, dtype=torch.float64))
        self.register_buffer("scatter", torch.zeros(shape, dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow to another device, but stay in float64: ``head.float()`` loses nothing."""
        super()._apply(lambda t: t.to(fn(t[:0]).device), recurse)  # type: ignore[no-untyped-call]
        return self

    @property
    def total(self) -> int:
        """How many samples are in the statistics."""
        return int(self.count.sum())

    def pooled_scatter(self) -> Tensor:
        """Give the within-class scatter (h, h) of all classes together."""
        lower = self.scatter.sum(dim=0) if self.kind == "per_class" else self.scatter
        return symmetric(lower)

    def overall_mean(self) -> Tensor:
        """Give the mean (h,) of all samples."""
        weight = self.count.to(self.mean.dtype) / max(self.total, 1)
        return weight @ self.mean

    def rounding(self) -> float:
        """Give the deviation that could be rounding: samples that differ by less are the same."""
        largest = float(self.mean.abs().max())
        return self.total * torch.finfo(self.mean.dtype).eps * largest

    def grow(self, n_classes: int) -> None:
        """Make room for more classes."""
        for name in ("count", "mean", *(("scatter",) if self.kind == "per_class" else ())):
            old = getattr(self, name)
            more = old.new_zeros(n_classes - old.shape[0], *old.shape[1:])
            setattr(self, name, torch.cat([old, more]))

    def add(self, z: Tensor, y: Tensor, scatter: bool = True) -> None:
        """Take in a batch; its scatter too, unless somebody else sees to that."""
        for rows, classes in pieces(z, y):
            self._add(rows, classes, scatter)

    def _add(self, z: Tensor, y: Tensor, scatter: bool) -> None:
        size = torch.bincount(y, minlength=self.count.numel())
        origin = self.mean
        if bool(((size > 0) & (self.count == 0)).any()):
            # A class without data is measured from its first sample, so that no digits cancel.
            first = z[first_of_each(y, size.numel())].to(origin)
            origin = torch.where(self.count[:, None] > 0, origin, first)
        present, size, shift, d = moments(z, y, origin, size)
        share = size.to(origin.dtype) / (self.count[present] + size)
        if scatter:
            self._scatter_add(present, y, d, shift * (size * share).sqrt()[:, None], sign=1)
        self.mean[present] = origin[present] + shift * share[:, None]
        self.count[present] += size

    def remove(self, z: Tensor, y: Tensor) -> None:
        """Take a batch out again, as if it had never been added."""
        lacking = torch.bincount(y, minlength=self.count.numel()) - self.count
        if bool((lacking > 0).any()):
            c = int(lacking.argmax())
            raise DataError(
                f"cannot forget {int(lacking[c] + self.count[c])} samples of class {c}: "
                f"only {int(self.count[c])} are in the statistics"
            )
        for rows, classes in pieces(z, y):
            self._remove(rows, classes)
        self._clear_rounding()

    def _remove(self, z: Tensor, y: Tensor) -> None:
        size = torch.bincount(y, minlength=self.count.numel())
        present, size, shift, d = moments(z, y, self.mean, size)
        left = self.count[present] - size
        share = torch.where(left > 0, size.to(shift.dtype) / left.clamp(min=1), 0)
        self._scatter_add(present, y, d, shift * (size * share).sqrt()[:, None], sign=-1)
        self.mean[present] -= shift * share[:, None]
        self.count[present] = left

    def remove_class(self, y: int) -> None:
        """Take a whole class out; its scatter must be known by itself."""
        self.count[y] = 0
        self._clear_rounding()

    def merge(self, other: "ClassStatistics") -> "ClassStatistics":
        """Give the statistics of both streams together."""
        n = max(self.count.numel(), other.count.numel())
        merged, more = (_copy(part, n) for part in (self, other))
        both = merged.count + more.count
        share = more.count.to(more.mean.dtype) / both.clamp(min=1)
        step = torch.where((merged.count > 0)[:, None], more.mean - merged.mean, more.mean)
        between = step * (merged.count * share).sqrt()[:, None]
        if self.kind == "pooled":
            merged.scatter += more.scatter + between.mT @ between
        elif self.kind == "per_class":
            merged.scatter += more.scatter + between[:, :, None] * between[:, None, :]
        merged.mean += step * share[:, None]
        merged.count = both
        return merged

    def _scatter_add(self, present: Tensor, y: Tensor, d: Tensor, step: Tensor, sign: int) -> None:
        """Add ±dᵀd − stepᵀstep, for all classes or for each.

        With k samples of a class that had n, measured from its mean and m their own mean from
        there, its scatter grows by Σ ddᵀ − k²/(n + k)·mmᵀ, and shrinks by Σ ddᵀ + k²/(n − k)·mmᵀ
        when they leave. m is small, so that little cancels.
        """
        if self.kind == "pooled":
            add_gram(self.scatter, d, sign)
            add_gram(self.scatter, step, -1)
        elif self.kind == "per_class":
            for i, c in enumerate(present.tolist()):
                add_gram(self.scatter[c], d[y == c], sign)
                add_gram(self.scatter[c], step[i : i + 1], -1)

    def _clear_rounding(self) -> None:
        """Leave nothing behind where there are no data, and no scatter where one sample is."""
        self.mean[self.count == 0] = 0
        if self.kind == "per_class":
            self.scatter[self.count <= 1] = 0
        elif self.kind == "pooled" and not bool((self.count > 1).any()):
            self.scatter.zero_()


def _copy(statistics: ClassStatistics, n_classes: int) -> ClassStatistics:
    copy = deepcopy(statistics)
    copy.grow(n_classes)
    return copy
