"""What knn, median and kernel_ridge share: they keep rows, so they can do what a set allows."""

from typing import Any, Self

from torch import Tensor

from lastlayer.core.tensors import are_whole
from lastlayer.errors import UnsupportedError
from lastlayer.heads.first_rows import Moments
from lastlayer.heads.head import Head, Preset
from lastlayer.heads.neighbours.stored_rows import Memory

MOST_ROWS = 10_000  # that are looked at to say how the rows lie


class StoringHead(Head):
    """A head that keeps the features that it has observed."""

    passes = 1

    def __init__(
        self, in_features: int, n_classes: int, preset: Preset | None, **options: Any
    ) -> None:
        super().__init__(in_features, n_classes, preset, **options)
        self.memory = Memory(in_features)

    @property
    def class_counts(self) -> Tensor:
        """How many samples (n_classes,) of each class it keeps."""
        with self.lock:
            self._settle()
            return self.memory.y.bincount(minlength=self.n_classes)

    @property
    def proof(self) -> str:
        """What ``forget`` can prove: it keeps them all."""
        return "the samples themselves are checked"

    def _take(self, z: Tensor, y: Tensor, most: int, *weight: Tensor) -> None:
        super()._take(*self._copied(z, y, *weight), most)

    def _copied(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return rows as often as they weigh."""
        if weight is None:
            return z, y
        if not bool(are_whole(weight)):
            raise UnsupportedError(
                f"weights of a '{self.name}' head must be whole numbers: it keeps so many copies"
            )
        times = weight.long()
        return z.repeat_interleave(times.to(z.device), dim=0), y.repeat_interleave(times)

    def _learn(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        self.memory.append(z, y)

    def _forget(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        self.memory.drop(*self._copied(z, y, *weight))
        self.seen = self.memory.y.bincount(minlength=self.n_classes) > 0

    def _forget_class(self, y: int) -> None:
        self.memory.keep((self.memory.y != y).nonzero().flatten())

    def _merge(self, other: Self) -> Self:
        merged = self._empty(max(self.n_classes, other.n_classes))
        for part in (self, other):
            merged.observe(part.memory.z, part.memory.y)
        return merged

    def _rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        self.memory.rearrange(classes, columns)
        self.seen = self.seen[classes]
        self._stale = True

    def _moments(self, columns: Tensor) -> Moments:
        some = slice(None, None, 1 + len(self.memory) // MOST_ROWS)
        z, y = self.memory.z[some], self.memory.y[some]
        return Moments.of(z[:, columns.to(z.device)], y, self.n_classes)

    def _keeps(self, z: Tensor) -> Tensor:
        return self.memory.known_too_often(z)
