"""Class Gaussians of class statistics: each class its own covariance, drawn towards the shared."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from lastlayer.core.checks import short, whole
from lastlayer.core.packed import symmetric
from lastlayer.core.tensors import are_whole
from lastlayer.errors import DataError, OptionError
from lastlayer.heads.shared_module import Precise
from lastlayer.heads.statistics.class_statistics import Scatter
from lastlayer.heads.statistics.covariance import factor, shrink
from lastlayer.heads.statistics.moments import TINY
from lastlayer.heads.statistics.possible import (
    check_spread,
    check_whole_classes,
    slack,
)
from lastlayer.heads.statistics.statistics_head import StatisticsHead, check_budget
from lastlayer.heads.weights import GONE


class GaussianHead(StatisticsHead):
    """A head that reads a Gaussian for each class, covariance (S_c + ν Σ)/(n_c + ν).

    S_c is the scatter of class c and Σ the covariance that all share, shrunk by OAS, so that ν is
    the number of samples that the shared covariance counts for.
    """

    smaller: str  # what to do where its statistics take too much

    def __init__(
        self, in_features: int, n_classes: int, *, nu: float | None, budget: int, **options: Any
    ) -> None:
        if nu is not None and not (isinstance(nu, int | float) and 0 <= nu < float("inf")):
            raise OptionError(f"nu must be at least 0, or None, got {short(nu)}")
        self.diagonal = bool(options.get("diagonal", False))
        whole(in_features, "in_features", least=1)
        whole(n_classes, "n_classes", least=0)
        self._check_budget(in_features, n_classes, budget)
        kind: Scatter = "none" if self.diagonal else "per_class"
        super().__init__(in_features, n_classes, None, kind, nu=nu, budget=budget, **options)
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
        if not self.diagonal:
            return shrink(s.pooled_scatter() / s.total, s, "oas")
        variance = s.scatter.sum(dim=0) / s.total
        level = float(variance.mean())
        if level <= s.rounding() ** 2:  # nothing varies
            return torch.ones_like(variance)
        few = diagonal_intensity(s.total)
        return variance * (1 - few) + level * few

    def _factor(self, c: int, shared: Tensor) -> Tensor:
        """Return the Cholesky factor (h, h) of a class's covariance, or its deviations (h,)."""
        s = self.statistics
        own = s.scatter[c] if self.diagonal else symmetric(s.scatter[c])
        covariance = (own + self.nu * shared) / (s.count[c] + self.nu)
        if self.diagonal:
            found = None if bool((covariance <= 0).any()) else covariance.sqrt()
        else:
            found = factor(covariance)
        if found is None:
            raise DataError(
                f"the covariance of class {c}, of {int(s.count[c])} samples with "
                f"{self.in_features} features, is singular: make the head with nu above 0"
            )
        return found


def diagonal_intensity(n: float) -> float:
    """Return the intensity of shrinkage of n samples' variances: a sample or two of their mean."""
    return 1 / (1 + n / 2)


class DiagonalStatistics(Precise):
    """Counts, means and the sums of squares of each feature around them, as ClassStatistics."""

    kind = "diagonal"
    count: Tensor  # (n_classes,) how many samples, or what they weigh together
    mean: Tensor  # (n_classes, h)
    scatter: Tensor  # (n_classes, h) Σ (z − μ_y)²
    weighted: Tensor  # () bool: whether some weights were no whole numbers

    def __init__(self, in_features: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(n_classes, dtype=torch.float64))
        self.register_buffer("weighted", torch.zeros((), dtype=torch.bool))
        for name in ("mean", "scatter"):
            room = torch.zeros(n_classes, in_features, dtype=torch.float64)
            self.register_buffer(name, room)

    @property
    def total(self) -> float:
        """How many samples are in the statistics, or what they weigh together."""
        return float(self.count.sum())

    def pooled_scatter(self) -> Tensor:
        """Return the within-class scatter (h, h) of all classes together: a diagonal one."""
        return self.scatter.sum(dim=0).diag()

    def rounding(self) -> float:
        """Return the deviation that could be rounding."""
        return self.total * torch.finfo(self.mean.dtype).eps * float(self.mean.abs().max())

    def about_zero(self) -> tuple[float, float]:
        """Return how many samples there are, and Σ ‖z‖² over them."""
        squares = self.count @ self.mean.square().sum(dim=1) + self.scatter.sum()
        return self.total, float(squares)

    def grow(self, n_classes: int) -> None:
        """Make room for more classes."""
        self.add_rows(n_classes, "count", "mean", "scatter")

    def add(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """Take in a batch."""
        self._join(self._of(z, y, weight), 1)

    def remove(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """Take a batch out again, as if it had never been added."""
        check_whole_classes(z, y, self.count, self.mean, self.rounding(), weight)
        self._join(self._of(z, y, weight), -1)

    def remove_class(self, y: int) -> None:
        """Take a whole class out."""
        stays = torch.arange(self.count.numel(), device=self.count.device) != y
        self.count = self.count * stays
        self.mean, self.scatter = self.mean * stays[:, None], self.scatter * stays[:, None]

    def rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        """Number classes and columns anew; see ``Head._rearrange``."""
        self.count, self.mean = self.count[classes], self.mean[classes]
        self.scatter = self.scatter[classes]
        if columns is not None:
            self.mean, self.scatter = self.mean[:, columns], self.scatter[:, columns]

    def merge(self, other: "DiagonalStatistics") -> "DiagonalStatistics":
        """Return the statistics of both streams together."""
        merged, more = deepcopy(self), deepcopy(other)
        n = max(merged.count.numel(), more.count.numel())
        for part in (merged, more):
            part.grow(n)
        merged._join(more, 1)
        return merged

    def _of(self, z: Tensor, y: Tensor, weight: Tensor | None) -> "DiagonalStatistics":
        """Return the statistics of one batch, its rows measured from one of each class."""
        batch = DiagonalStatistics(z.shape[1], self.count.numel()).to(self.mean.device)
        z, w = z.to(self.mean), self.count.new_ones(len(y)) if weight is None else weight
        size = torch.zeros_like(self.count).index_add_(0, y, w)
        origin = torch.zeros_like(self.mean).index_copy_(0, y, z)
        d = z - origin[y]
        shift = torch.zeros_like(origin).index_add_(0, y, d * w[:, None])
        shift /= size.clamp(min=TINY)[:, None]
        squares = (d - shift[y]).square() * w[:, None]
        batch.scatter = torch.zeros_like(origin).index_add_(0, y, squares)
        batch.count, batch.mean, batch.weighted = size, origin + shift, ~are_whole(w)
        return batch

    def _join(self, more: "DiagonalStatistics", sign: int) -> None:
        """Add or take off the statistics of other samples."""
        count = self.count + sign * more.count
        count.masked_fill_(count <= GONE * self.count, 0)
        weighted = self.weighted | more.weighted
        share = (more.count / count.clamp(min=TINY)).masked_fill(count == 0, 0)[:, None]
        step = torch.where(more.count[:, None] > 0, more.mean - self.mean, 0)
        between = step.square() * (self.count[:, None] * share)
        scatter = self.scatter + sign * (more.scatter + between)
        if sign < 0:
            least = slack(self.scatter, self.count[:, None], self.rounding())
            check_spread(scatter, count, least, bool(weighted))
        scatter = scatter.clamp(min=0)
        several = (count > 0) & (weighted | (count > 1))
        self.scatter = torch.where(several[:, None], scatter, 0)
        self.mean = torch.where((count > 0)[:, None], self.mean + sign * step * share, 0)
        self.count, self.weighted = count, weighted & count.any()
