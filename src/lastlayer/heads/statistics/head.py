"""What mean and slda share: they read class statistics, so they can merge and forget exactly."""

from typing import Any, Self

from torch import Tensor

from lastlayer.heads.head import Head, Preset, learning
from lastlayer.heads.statistics.class_statistics import ClassStatistics, Scatter


class StatisticsHead(Head):
    """A head that reads class statistics, and can therefore forget exactly."""

    passes = 1

    def __init__(
        self, in_features: int, n_classes: int, preset: Preset, scatter: Scatter, **options: Any
    ) -> None:
        super().__init__(in_features, n_classes, preset, **options)
        self.statistics = ClassStatistics(in_features, n_classes, scatter)

    @property
    def additive(self) -> bool:
        """Statistics add up."""
        return True

    def forget(self, z: Tensor, y: Tensor) -> None:
        """Make it as if the samples ``z`` (n, h) of classes ``y`` had never been observed."""
        z = self._check_features(z)
        y = self._check_labels(y, z.shape[0])
        if y.numel() and int(y.max()) >= self.n_classes:
            raise self._unknown_class(int(y.max()))
        with learning():
            self.statistics.remove(z, y)
            self._take_counts()

    def forget_class(self, y: int) -> None:
        """Make it as if class ``y`` had never been observed."""
        if not (isinstance(y, int) and 0 <= y < self.n_classes):
            raise self._unknown_class(y)
        with learning():
            self.statistics.remove_class(y)
            self._take_counts()

    def _learn(self, z: Tensor, y: Tensor) -> None:
        self.statistics.add(z, y)

    def _grow(self, n_classes: int) -> None:
        self.statistics.grow(n_classes)
        super()._grow(n_classes)

    def _merge(self, other: Self) -> Self:
        merged = type(self)(**self.settings).to(self.seen.device)
        merged.statistics = self.statistics.merge(other.statistics)
        merged._take_counts()
        return merged

    def _take_counts(self) -> None:
        self.seen = self.statistics.count > 0
        self._stale = True
