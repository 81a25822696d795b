"""Whether the first rows that a head is shown can be of the features that it has learned.

Rows of one model vary much along some directions and little along others, whatever their classes:
new classes and new surroundings hardly change that, while embeddings of another model vary alike
along all directions of the first. So the variances of the first rows, along the directions in which
the rows learned vary within their classes, are compared with those of the rows learned. How often
that is right and wrong is measured in results/benchmarks/other_features.md.
"""

import math
import warnings
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
from torch import Tensor

from lastlayer.errors import OtherFeaturesWarning

if TYPE_CHECKING:
    from lastlayer.heads.head import Head
    from lastlayer.heads.maps.feature_map import FeatureMap

ENOUGH = 20  # different rows that tell; 200 are looked at, if so many come at once
LOOKED_AT = 200
ALIKE = 0.7  # correlation of the logarithms of both variances: 0.8 and more if they are the same
FAR = 20.0  # times as much, or as little, variance
MOST = 256  # directions, and of as many columns; ten rows learned for each
FEWEST = 8  # directions of which a correlation says something
TO_BEGIN = 640  # rows learned: after fewer, new classes may well seem to be other features
UNEVEN = 0.4  # deviation of the logarithms of variances: below, all directions are alike
PROBED = 1024  # mapped features that are read


class Moments(NamedTuple):
    """How rows that were learned lie, of some columns of features."""

    counts: Tensor  # (n_classes,)
    means: Tensor  # (n_classes, d)
    scatter: Tensor  # (d, d) within classes, of all rows together

    @classmethod
    def of(cls, z: Tensor, y: Tensor, n_classes: int) -> Self:
        """Return the moments of some rows (n, d)."""
        z, count = z.double(), y.bincount(minlength=n_classes)
        mean = z.new_zeros(n_classes, z.shape[1]).index_add_(0, y, z)
        mean /= count.clamp(min=1)[:, None]
        centred = z - mean[y]
        return cls(count, mean, centred.mT @ centred)


class Directions(NamedTuple):
    """The directions along which learned rows vary, and how much."""

    columns: Tensor  # (d,) of features
    readout: "Readout | None"  # reads them back, where the head sees mapped ones
    basis: Tensor  # (d, k)
    within: Tensor  # (k,) variances within the classes, ascending
    total: Tensor  # (k,) and of all rows together

    @classmethod
    def of(cls, head: "Head") -> "Directions | None":
        """Return the directions of a head; None: it keeps nothing that tells, or too little."""
        counts = head.class_counts
        if counts is None or int((counts > 0).sum()) < 2:
            return None
        rows, fixed = int(counts.sum()), head.feature_map
        if rows < TO_BEGIN or not (fixed is None or fixed.fitted):
            return None
        width = min(MOST, head.in_features, rows // 10)
        columns = torch.linspace(0, head.in_features - 1, width).round().long()
        if fixed is None:
            moments = head._moments(columns)
            return None if moments is None else cls._along(columns, None, moments)
        readout = Readout.of(fixed, columns)
        mapped = head.behind_map._moments(torch.arange(len(readout.centre)))
        return None if mapped is None else cls._along(columns, readout, readout.of_moments(mapped))

    @classmethod
    def _along(
        cls, columns: Tensor, readout: "Readout | None", moments: Moments
    ) -> "Directions | None":
        n = moments.counts.sum()
        variances, basis = torch.linalg.eigh(moments.scatter / n)
        varies = variances > variances[-1] * 1e-6
        if not bool(varies.any()):
            return None
        basis, within = basis[:, varies], variances[varies]
        share = (moments.counts / n).double()
        between = (moments.means - share @ moments.means) @ basis
        return cls(columns, readout, basis, within, within + share @ between.square())

    def coordinates(self, z: Tensor) -> Tensor:
        """Return where rows (n, h) lie along the directions, (n, k)."""
        if self.readout is None:
            return z[:, self.columns].to(self.basis) @ self.basis
        return self.readout(z) @ self.basis

    def unlike(self, rows: Tensor) -> str:
        """Return how rows, by their coordinates, differ from those learned; "": not."""
        found = _without_farthest(rows, self.total).var(dim=0)
        found = found.clamp(min=float(self.within[-1]) * 1e-12)
        # Rows of one class vary as within the classes, those of many as all rows together.
        likely = self.within.log(), self.total.log()
        telling = len(found) >= FEWEST and all(float(one.std()) > UNEVEN for one in likely)
        alike = max(_correlation(one, found.log()) for one in likely)
        if telling and alike < ALIKE:
            return (
                "vary along other directions than the rows that it has learned (correlation "
                f"{alike:.2f}, where the same features have 0.8 or more)"
            )
        little, much = (float(found.sum() / one.sum()) for one in (self.within, self.total))
        if little < 1 / FAR or much > FAR:
            times = much if much > FAR else little
            return f"have {times:.2g} times the variance of the rows that it has learned"
        return ""


def _correlation(one: Tensor, other: Tensor) -> float:
    one, other = one - one.mean(), other - other.mean()
    return float(one @ other / (one.norm() * other.norm()).clamp(min=1e-12))


def _without_farthest(rows: Tensor, variances: Tensor) -> Tensor:
    """Return the nearer three quarters of rows: a few strange ones say nothing of the others."""
    far = ((rows - rows.median(dim=0).values).square() / variances).sum(dim=1)
    return rows[far.argsort()[: len(rows) * 3 // 4]]


class Readout(NamedTuple):
    """Reads features back from mapped ones, roughly: what a random map mixes up, it sorts."""

    map: "FeatureMap"
    centre: Tensor  # (m,) of the first m mapped features
    weight: Tensor  # (m, d)

    @classmethod
    def of(cls, fixed: "FeatureMap", columns: Tensor) -> Self:
        """Fit it by ridge on rows drawn around the map's centre, alike in all directions."""
        h, m = fixed.in_features, min(fixed.width, 4 * fixed.in_features, PROBED)
        drawn = torch.randn(2 * m, h, generator=torch.Generator().manual_seed(0)).to(fixed.centre)
        # One number is a distance between rows, √(2h) times the deviation of a feature.
        size = fixed.scale if fixed.scale.numel() > 1 else fixed.scale / math.sqrt(2 * h)
        drawn = drawn * size
        mapped = fixed(fixed.centre + drawn)[:, :m]
        centre = mapped.mean(dim=0)
        mapped = mapped - centre
        gram = mapped.mT @ mapped
        gram.diagonal().add_(0.01 * gram.diagonal().mean())
        return cls(fixed, centre, torch.linalg.solve(gram, mapped.mT @ drawn[:, columns]))

    def __call__(self, z: Tensor) -> Tensor:
        """Read columns (n, d) of rows (n, h) back from their mapped features."""
        mapped: Tensor = self.map(z)
        return (mapped[:, : len(self.centre)] - self.centre) @ self.weight

    def of_moments(self, moments: Moments) -> Moments:
        """Read the moments of mapped features."""
        mean = (moments.means - self.centre) @ self.weight
        return Moments(moments.counts, mean, self.weight.mT @ moments.scatter @ self.weight)


class FirstRows:
    """Looks at the first rows that a head is shown, until there are enough to tell.

    ``again``: where the head has learned too little to tell, later rows are tried.

    >>> from lastlayer import load_features, make_head
    >>> train, test = load_features("cifar10").train, load_features("cifar10").test.z.double()
    >>> head = make_head("slda", in_features=64)
    >>> head.observe(train.z[:5000].double(), train.y[:5000])
    >>> FirstRows().see(head, test[:20])
    ''
    >>> FirstRows().see(head, test[:20].flip(1))[:32]
    'vary along other directions than'
    """

    def __init__(self, again: bool = True) -> None:
        self._again, self._done = again, False
        self._directions: Directions | None = None
        self._rows: list[Tensor] = []

    def warn(self, head: "Head", z: Tensor, what: str) -> None:
        """Warn, once, if the first rows of these that tell are of other features."""
        if unlike := self.see(head, z):
            warnings.warn(
                f"the first rows {what} {unlike}: are they features of the same model, their "
                "columns in the same order?",
                OtherFeaturesWarning,
                stacklevel=4,
            )

    def see(self, head: "Head", z: Tensor) -> str:
        """Look at rows (n, h); return how they differ from those learned, once, or ""."""
        if self._done:
            return ""
        if self._directions is None:
            self._directions = Directions.of(head)
            if self._directions is None:
                self._done = not self._again
                return ""
        self._rows.append(self._directions.coordinates(z[:LOOKED_AT]))
        rows = torch.cat(self._rows).unique(dim=0)
        if len(rows) < ENOUGH:
            return ""
        found = self._directions.unlike(rows)
        self._done, self._directions, self._rows = True, None, []
        return found
