"""Class Gaussians of class statistics: each class its own covariance, drawn towards the shared."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor

from lastlayer.arguments import short, whole
from lastlayer.errors import DataError, OptionError
from lastlayer.heads.head import Preset
from lastlayer.heads.resizable import Resizable
from lastlayer.heads.statistics.budget import check_budget
from lastlayer.heads.statistics.class_statistics import Scatter
from lastlayer.heads.statistics.covariance import oas
from lastlayer.heads.statistics.head import StatisticsHead
from lastlayer.heads.statistics.possible import (
    check_counts,
    check_spread,
    check_whole_classes,
    slack,
)


class GaussianHead(StatisticsHead):
    """A head that reads a Gaussian for each class, covariance (S_c + ν Σ)/(n_c + ν).

    S_c is the scatter of class c and Σ the covariance that all share, shrunk by OAS, so that ν is
    the number of samples that the shared covariance counts for.
    """

    smaller: str  # what to do where its statistics take too much

    def __init__(
        self, in_features: int, n_classes: int, preset: Preset, *, nu: float | None, budget: int,
        **options: Any,
    ) -> None:  # fmt: skip
        if nu is not None and not (isinstance(nu, int | float) and 0 <= nu < float("inf")):
            raise OptionError(f"expected nu of at least 0, or None, got {short(nu)}")
        self.diagonal = bool(options.get("diagonal", False))
        whole(in_features, "in_features", least=1)
        whole(n_classes, "n_classes", least=0)
        self._check_budget(in_features, n_classes, budget)
        kind: Scatter = "none" if self.diagonal else "per_class"
        super().__init__(in_features, n_classes, preset, kind, nu=nu, budget=budget, **options)
        if self.diagonal:
            self._modules["statistics"] = DiagonalStatistics(in_features, n_classes)

    @property
    def nu(self) -> float:
        """How many samples the shared covariance counts for: two a feature, unless told."""
        asked = self.options["nu"]
        return float(2 * self.in_features if asked is None else asked)

    def _check_budget(self, h: int, n_classes: int, budget: int) -> None:
        needed = 8 * n_classes * (h + 1 + (h if self.diagonal else h * h))
        check_budget(f"{n_classes} classes of {h} features", needed, budget, self.smaller)

    def _grow(self, n_classes: int) -> None:
        self._check_budget(self.in_features, n_classes, self.options["budget"])
        super()._grow(n_classes)

    def _shared(self) -> Tensor:
        """Return the shrunk covariance (h, h) of all classes, or its diagonal (h,)."""
        s = self.statistics
        nothing_varies = s.rounding() ** 2
        if self.diagonal:
            variance = s.scatter.sum(dim=0) / s.total
            level = float(variance.mean())
            if level <= nothing_varies:
                return torch.ones_like(variance)
            few = 1 / (1 + s.total / 2)  # as a sample or two of the level would weigh
            return variance * (1 - few) + level * few
        covariance = s.pooled_scatter() / s.total
        level = float(covariance.trace()) / self.in_features
        identity = torch.eye(self.in_features, dtype=covariance.dtype, device=covariance.device)
        if level <= nothing_varies:
            return identity
        shrinkage = oas(covariance, s.total)
        return covariance * (1 - shrinkage) + identity * (shrinkage * level)

    def _factor(self, c: int, shared: Tensor) -> Tensor:
        """Return the Cholesky factor (h, h) of a class's covariance, or its deviations (h,)."""
        s = self.statistics
        lower = s.scatter[c] if self.diagonal else s.scatter[c].tril() + s.scatter[c].tril(-1).mT
        covariance = (lower + self.nu * shared) / (s.count[c] + self.nu)
        if self.diagonal:
            factor, bad = covariance.sqrt(), bool((covariance <= 0).any())
        else:
            factor, failed = torch.linalg.cholesky_ex(covariance)
            rounding = len(covariance) * torch.finfo(covariance.dtype).eps
            pivots = factor.diagonal().square()
            bad = bool(failed) or bool((pivots <= rounding * covariance.diagonal()).any())
        if bad:
            raise DataError(
                f"expected a covariance of class {c} that can be inverted, got a singular one of "
                f"{int(s.count[c])} samples with {self.in_features} features: make the head with "
                "nu above 0"
            )
        return factor


class DiagonalStatistics(Resizable):
    """Counts, means and the sums of squares of each feature around them, as ClassStatistics."""

    kind = "diagonal"
    count: Tensor  # (n_classes,) int64
    mean: Tensor  # (n_classes, h)
    scatter: Tensor  # (n_classes, h) Σ (z − μ_y)²

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(n_classes, dtype=torch.int64))
        for name in ("mean", "scatter"):
            room = torch.zeros(n_classes, in_features, dtype=torch.float64)
            self.register_buffer(name, room)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow to another device, but stay in float64."""
        super()._apply(lambda t: t.to(fn(t[:0]).device), recurse)  # type: ignore[no-untyped-call]
        return self

    @property
    def total(self) -> int:
        """How many samples are in the statistics."""
        return int(self.count.sum())

    def rounding(self) -> float:
        """Return the deviation that could be rounding."""
        return self.total * torch.finfo(self.mean.dtype).eps * float(self.mean.abs().max())

    def grow(self, n_classes: int) -> None:
        """Make room for more classes."""
        for name in ("count", "mean", "scatter"):
            old = getattr(self, name)
            more = old.new_zeros(n_classes - old.shape[0], *old.shape[1:])
            setattr(self, name, torch.cat([old, more]))

    def add(self, z: Tensor, y: Tensor) -> None:
        """Take in a batch."""
        self._join(self._of(z, y), 1)

    def remove(self, z: Tensor, y: Tensor) -> None:
        """Take a batch out again, as if it had never been added."""
        check_counts(y, self.count)
        check_whole_classes(z, y, self.count, self.mean, self.rounding())
        self._join(self._of(z, y), -1)

    def remove_class(self, y: int) -> None:
        """Take a whole class out."""
        stays = torch.arange(self.count.numel(), device=self.count.device) != y
        self.count = self.count * stays
        self.mean, self.scatter = self.mean * stays[:, None], self.scatter * stays[:, None]

    def merge(self, other: "DiagonalStatistics") -> "DiagonalStatistics":
        """Return the statistics of both streams together."""
        merged, more = deepcopy(self), deepcopy(other)
        n = max(merged.count.numel(), more.count.numel())
        for part in (merged, more):
            part.grow(n)
        merged._join(more, 1)
        return merged

    def _of(self, z: Tensor, y: Tensor) -> "DiagonalStatistics":
        """Return the statistics of one batch, its rows measured from one of each class."""
        batch = DiagonalStatistics(z.shape[1], self.count.numel()).to(self.mean.device)
        z, size = z.to(self.mean), torch.bincount(y, minlength=self.count.numel())
        origin = torch.zeros_like(self.mean).index_copy_(0, y, z)
        d = z - origin[y]
        shift = torch.zeros_like(origin).index_add_(0, y, d) / size.clamp(min=1)[:, None]
        squares = torch.zeros_like(origin).index_add_(0, y, (d - shift[y]).square())
        batch.count, batch.mean, batch.scatter = size, origin + shift, squares
        return batch

    def _join(self, more: "DiagonalStatistics", sign: int) -> None:
        """Add or take off the statistics of other samples."""
        count = self.count + sign * more.count
        share = (more.count / count.clamp(min=1).double())[:, None]
        step = torch.where(more.count[:, None] > 0, more.mean - self.mean, 0)
        between = step.square() * (self.count[:, None] * share)
        scatter = self.scatter + sign * (more.scatter + between)
        if sign < 0:
            least = slack(self.scatter, self.count[:, None].double(), self.rounding())
            check_spread(scatter, count, least)
        scatter = scatter.clamp(min=0)
        self.scatter = torch.where((count > 1)[:, None], scatter, 0)
        self.mean = torch.where((count > 0)[:, None], self.mean + sign * step * share, 0)
        self.count = count
