"""What mean and slda share: they read class statistics, so they can merge and forget exactly."""

from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from lastlayer.catalogue import Abilities
from lastlayer.heads.graph import Value, masked
from lastlayer.heads.head import Head, Preset
from lastlayer.heads.statistics.class_statistics import ClassStatistics, Scatter, most_waiting
from lastlayer.heads.statistics.covariance import (
    Mahalanobis,
    RelativeMahalanobis,
    shared_root,
)
from lastlayer.heads.statistics.fading import FadingStatistics

FADES = "what fades depends on the order of its data; without half_life it can"


class StatisticsHead(Head):
    """A head that reads class statistics, and can therefore forget exactly."""

    passes = 1
    streams: ClassVar[bool] = False  # whether ``_learn`` hands rows to the statistics as they came

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        preset: Preset,
        scatter: Scatter,
        *,
        half_life: float | None = None,
        **options: Any,
    ) -> None:
        if half_life is not None:
            options["half_life"] = half_life
        super().__init__(in_features, n_classes, preset, **options)
        if half_life is None:
            self._modules["statistics"] = ClassStatistics(in_features, n_classes, scatter)
        else:
            fading = FadingStatistics(in_features, n_classes, scatter, half_life)
            self._modules["statistics"] = fading
        self._complete: Tensor | None = None  # ``seen``, once it was found to hold every class

    @property
    def statistics(self) -> ClassStatistics:
        """What it knows about its data, with the rows that waited; others are read like these."""
        with self.lock:
            found = self._unfolded
            if self._waits():
                if found.log.open:
                    found.fold()
                else:
                    self._settle()
            return found

    def _waits(self) -> bool:
        return isinstance(self._unfolded, ClassStatistics) and self._unfolded.waits

    def _fold(self) -> None:
        self._unfolded.fold()

    @property
    def _unfolded(self) -> ClassStatistics:
        return cast(ClassStatistics, self._modules["statistics"])

    @property
    def fades(self) -> bool:
        """Whether what it has learned fades, so that order matters."""
        return "half_life" in self.options

    @property
    def abilities(self) -> Abilities:
        """Statistics add up and can be taken off; a class only where its scatter is its own."""
        if self.fades:
            return Abilities(linear=True)
        own = self._unfolded.kind != "pooled"
        return Abilities(linear=True, order_free=True, merges=True, forgets=True, forgets_class=own)

    @property
    def class_counts(self) -> Tensor:
        """How many samples (n_classes,) of each class it has learned; those that fade count too."""
        with self.lock:
            self._settle()
            known = self.statistics
            return (known.observed if isinstance(known, FadingStatistics) else known.count).clone()

    @property
    def proof(self) -> str:
        """What ``forget`` can prove: never that it was these very samples."""
        known = {"pooled": "one scatter", "per_class": "the scatter of each class"}
        kept = known.get(self._unfolded.kind, "the spread of each class")
        return f"counts and {kept} are checked; whether it saw these very samples cannot be proven"

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        return self.mahalanobis().novelty(z)

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        return self._logits_graph(z), self.mahalanobis().graph(z)

    def _logits_graph(self, z: Value) -> Value:
        """Write down the logits of a head with weight, bias and centre."""
        head, known = cast(Any, self), self._can_win()
        return masked((z - head.centre) @ head.weight.mT + torch.where(known, head.bias, 0), known)

    def _can_win(self) -> Tensor:
        """Say which classes (n_classes,) can be answered."""
        return self.seen

    def mahalanobis(self) -> Mahalanobis:
        """Return what measures distances from the class means; the head is ready to answer."""
        found: Mahalanobis | None = self._derived.get("mahalanobis")
        if found is None or found.root.device != self.seen.device:
            means = self.statistics.mean[self.seen]
            found = self._derived["mahalanobis"] = Mahalanobis(self._shared_root().to(means), means)
        return found

    def relative_mahalanobis(self) -> RelativeMahalanobis:
        """Return what measures them beside the distance from all data; as ``mahalanobis``."""
        found: RelativeMahalanobis | None = self._derived.get("relative")
        if found is None or found.weight.device != self.seen.device:
            means, count = self.statistics.mean[self.seen], self.statistics.count[self.seen]
            root = self._shared_root().to(means)
            found = RelativeMahalanobis(root, means, count.double() / count.sum())
            self._derived["relative"] = found
        return found

    def _shared_root(self) -> Tensor:
        """Return the Cholesky factor (h, h) of the covariance that all classes share."""
        root = shared_root(self.statistics)
        return root if root is not None else torch.eye(self.in_features).to(self.statistics.mean)

    def _forget(self, z: Tensor, y: Tensor) -> None:
        self.statistics.remove(z, y)
        self._take_counts()

    def _forget_class(self, y: int) -> None:
        self.statistics.remove_class(y)

    def _looks_itself(self, n: int) -> bool:
        # Rows that may wait must be looked at when they come; those that fade never are later.
        return self.streams and 2 * n > most_waiting(self.in_features) and not self.fades

    def _wait(self, z: Tensor, y: Tensor) -> bool:
        seen = cast(Tensor, self._buffers["seen"])
        few = 2 * y.numel() <= most_waiting(self.in_features)
        if self.fades or not (few and self.streams and seen.is_cpu and y.is_cpu):
            return False
        if seen is not self._complete:  # a change of what was seen is always a new tensor
            if not seen.numpy()[y.numpy()].all():
                return False
            self._complete = seen if bool(seen.all()) else None
        self.__dict__["_stale"] = True  # nn.Module's way takes longer than what is done here
        return self._unfolded.wait(z, y)

    def _learn(self, z: Tensor, y: Tensor) -> None:
        self._unfolded.add(z, y)

    def _grow(self, n_classes: int) -> None:
        self._unfolded.grow(n_classes)
        super()._grow(n_classes)

    def _merge(self, other: Self) -> Self:
        merged = type(self)(**self.settings).to(self.seen.device)
        merged._modules["statistics"] = self.statistics.merge(other.statistics)
        merged._take_counts()
        return merged

    def _take_counts(self) -> None:
        self.seen = self.statistics.count > 0
        self._stale = True
