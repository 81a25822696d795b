"""Class statistics that fade: what was learned counts half after ``half_life`` samples."""

import math

import torch
from torch import Tensor

from lastlayer.core.checks import short
from lastlayer.core.packed import symmetric
from lastlayer.errors import OptionError
from lastlayer.heads.shared_module import Precise
from lastlayer.heads.statistics.class_statistics import Scatter
from lastlayer.heads.statistics.moments import add_gram

_OCTAVES = 8  # half-lives in a piece of a batch: its sums lose no more than 8 bits to one another


class FadingStatistics(Precise):
    """Means that follow their classes, and the scatter around them; read like ClassStatistics.

    A class's mean fades by samples of that class, so one that does not return stays as it was; the
    scatter of all classes fades by all samples. Both go row by row, so batches make no difference,
    but the order does: such statistics neither merge nor forget.

    Counts are effective: m fading samples are worth (Σw)²/Σw² equally weighted ones, which is
    tanh(m·a/2)/tanh(a/2) with a = log 2/half_life. Their sum is the count of the scatter, divided
    among the classes in proportion to their own counts.
    """

    symmetric = ("scatter",)
    observed: Tensor  # (n_classes,) int64: samples so far
    mean: Tensor  # (n_classes, h); zero for a class without data
    scatter: Tensor  # (h, h) or empty: the lower triangle of the faded sum of squares

    def __init__(
        self, in_features: int, n_classes: int, scatter: Scatter, half_life: float
    ) -> None:
        super().__init__()
        number = isinstance(half_life, int | float) and not isinstance(half_life, bool)
        if not (number and 0 < half_life < math.inf):
            raise OptionError(f"half_life must be above 0, or None, got {short(half_life)}")
        if scatter == "per_class":
            raise OptionError("half_life needs one scatter for all classes, not one for each")
        h = in_features if scatter == "pooled" else 0
        self.kind: Scatter = scatter
        self.rate = math.log(2) / half_life
        self.register_buffer("observed", torch.zeros(n_classes, dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(n_classes, in_features, dtype=torch.float64))
        self.register_buffer("scatter", torch.zeros(h, h, dtype=torch.float64))

    @property
    def total(self) -> float:
        """How many samples the scatter is worth."""
        return float(_worth(self.observed.sum(), self.rate))

    @property
    def count(self) -> Tensor:
        """How many samples (n_classes,) each class is worth; together they are the total."""
        worth = _worth(self.observed, self.rate)
        return worth * (self.total / worth.sum().clamp(min=1))

    def pooled_scatter(self) -> Tensor:
        """Return the within-class scatter (h, h) of as many samples as the total."""
        weight = float(_weight(self.observed.sum(), self.rate))
        return symmetric(self.scatter) * (self.total / max(weight, 1.0))

    def overall_mean(self) -> Tensor:
        """Return the mean (h,) of all classes, each weighing as its count."""
        return self.count / max(self.total, 1.0) @ self.mean

    def rounding(self) -> float:
        """Return the deviation that could be rounding: samples that differ by less are the same."""
        eps = torch.finfo(self.mean.dtype).eps
        return int(self.observed.sum()) * eps * float(self.mean.abs().max())

    def grow(self, n_classes: int) -> None:
        """Make room for more classes."""
        self.add_rows(n_classes, "observed", "mean")

    def add(self, z: Tensor, y: Tensor) -> None:
        """Add a batch, row by row."""
        n = max(int(_OCTAVES * math.log(2) / self.rate), 1)
        size = max(min(n, (8 << 20) // (8 * z.shape[1])), 1)
        for rows, classes in zip(z.split(size), y.split(size), strict=True):
            self._add(rows.to(self.mean), classes)

    def _add(self, z: Tensor, y: Tensor) -> None:
        """Sort by class, and sum with weights that grow by the row: later rows count more.

        Row j of a class, of which m samples were there before, is measured from the mean over them,
        Σ_{i<j} w_i d_i / (w(m) + Σ_{i<j} w_i), d_i from the mean before the batch, where w_i are
        the weights as they look from row j.
        """
        order = torch.argsort(y, stable=True)
        c = y[order]
        size = torch.bincount(y, minlength=self.observed.numel())
        start = (size.cumsum(0) - size)[c]
        place = torch.arange(len(c), device=c.device) - start  # of a row among those of its class
        first = z[order][start]
        origin = torch.where((self.observed[c] > 0)[:, None], self.mean[c], first)
        d = z[order] - origin
        heavy = (self.rate * (place + 1).double()).exp()  # of a row, seen from before the batch
        sums = (d * heavy[:, None]).cumsum(0)
        before = sums - d * heavy[:, None]
        before = before - before[start]  # of earlier rows of the same class
        earlier = self.observed[c] + place
        weight = _weight(earlier, self.rate).clamp(min=1)
        running = before * ((-self.rate * place.double()).exp() / weight)[:, None]
        v = d - running
        if self.kind == "pooled":
            self._add_scatter(torch.empty_like(v).index_copy_(0, order, v), order, earlier)
        last = place == size[c] - 1
        gain = _weight(earlier[last] + 1, self.rate).reciprocal()
        new = origin[last] + running[last] + v[last] * gain[:, None]
        self.mean = self.mean.index_copy(0, c[last], new)
        self.observed = self.observed + size

    def _add_scatter(self, v: Tensor, order: Tensor, earlier: Tensor) -> None:
        """Add a row's square, less where the mean that it is measured from is uncertain."""
        worth = _worth(earlier, self.rate)
        share = torch.empty_like(worth).index_copy_(0, order, worth / (worth + 1))
        age = torch.arange(len(v) - 1, -1, -1, device=v.device, dtype=v.dtype)
        scatter = self.scatter * math.exp(-self.rate * len(v))
        add_gram(scatter, v * (share * (-self.rate * age).exp()).sqrt()[:, None])
        self.scatter = scatter


def _weight(m: Tensor, rate: float) -> Tensor:
    """Return the sum of the weights of m samples: 1 + e^−a + … + e^−(m−1)a."""
    return torch.expm1(-rate * m.double()) / math.expm1(-rate)


def _worth(m: Tensor, rate: float) -> Tensor:
    """Return how many equally weighted samples m fading samples are worth."""
    return torch.tanh(m.double() * rate / 2) / math.tanh(rate / 2)
