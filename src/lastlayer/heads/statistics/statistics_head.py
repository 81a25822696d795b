"""What heads with class statistics share: exact merging, exact forgetting, and novelty."""

from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn

from lastlayer.catalogue.head_cards import Abilities, size_in_words
from lastlayer.core.checks import whole
from lastlayer.core.tensors import check_batch
from lastlayer.errors import OptionError
from lastlayer.heads.answering import can_win
from lastlayer.heads.export import linear_layer
from lastlayer.heads.first_rows import Moments
from lastlayer.heads.forgotten import FORGOTTEN
from lastlayer.heads.graph import Value, masked
from lastlayer.heads.head import Head, Preset
from lastlayer.heads.statistics.class_statistics import (
    ClassStatistics,
    Scatter,
    most_waiting,
)
from lastlayer.heads.statistics.covariance import shared_root
from lastlayer.heads.statistics.fading import FadingStatistics
from lastlayer.heads.statistics.novelty import Mahalanobis, PartlyRelative, RelativeMahalanobis
from lastlayer.heads.undo import AllOrNothing, learning

SOLUTION = ("weight", "bias", "centre")
ONE_SCATTER = "it keeps one scatter for all classes; forget the samples of the class instead"
BUDGET = 2 << 30  # bytes that statistics may take, unless a head is made with another number


class StatisticsHead(Head):
    """A head that reads class statistics, and can therefore forget exactly.

    Small batches of known classes are put aside, which costs next to nothing; the statistics take
    them in when something is asked of them.
    """

    passes = 1
    weight: Tensor  # (n_classes, h), of heads that answer by a linear layer; as bias and centre,
    bias: Tensor  # (n_classes,), it is made anew by the first forward after a change
    centre: Tensor  # (h,) what features are measured from
    solution: ClassVar[tuple[str, ...]] = ()  # these three, where a head has them
    streams: ClassVar[bool] = False  # whether ``_learn`` hands rows to the statistics as they came

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        preset: Preset | None,
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
        # Rows that may wait must be looked at when they come; those that fade never are later.
        self._few = most_waiting(self.in_features) // 2 if self.streams and not self.fades else 0

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

    @property
    def _unfolded(self) -> ClassStatistics:
        return cast(ClassStatistics, self._modules["statistics"])

    def _waits(self) -> bool:
        return isinstance(self._unfolded, ClassStatistics) and self._unfolded.waits

    def _settle(self) -> None:
        super()._settle()
        if self._waits():
            with AllOrNothing(self), learning(self):
                self._unfolded.fold()

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
        able = {"order_free": True, "merges": True, "forgets": True, "weighs": True}
        # Of a row that weighs no whole number nobody knows what goes with it.
        plain = not bool(self._unfolded.weighted)
        return Abilities(linear=True, forgets_class=own, leaves_out=plain, **able)

    @property
    def class_counts(self) -> Tensor:
        """How many samples (n_classes,) of each class it has learned; those that fade count too.

        Where samples weigh, it is what they weigh together.
        """
        with self.lock:
            self._settle()
            known = self.statistics
            if isinstance(known, FadingStatistics):
                return known.observed.clone()
            return known.count.clone() if known.weighted else known.count.long()

    def _squares(self) -> tuple[float, float]:
        s = self._unfolded
        return (0.0, 0.0) if isinstance(s, FadingStatistics) else s.about_zero()

    def _moments(self, columns: Tensor) -> Moments | None:
        s = self.statistics
        at = columns.to(s.mean.device)
        if s.kind == "none" and self.fades:
            return None
        if s.kind == "none":
            scatter = torch.eye(len(at)).to(s.mean) * (s.spread.sum() / self.in_features)
        else:
            scatter = s.pooled_scatter()[at][:, at]
        return Moments(s.count, s.mean[:, at], scatter)

    @property
    def proof(self) -> str:
        """What ``forget`` can prove: never that it was these very samples."""
        known = {"pooled": "one scatter", "per_class": "the scatter of each class"}
        kept = known.get(self._unfolded.kind, "the spread of each class")
        return f"counts and {kept} are checked; whether it saw these very samples cannot be proven"

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        return self._partly_relative().novelty(z)

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        return self._logits_graph(z), self._partly_relative().graph(z)

    def _partly_relative(self) -> PartlyRelative:
        return PartlyRelative(self.mahalanobis(), self.relative_mahalanobis(), 0.75)

    def _logits_graph(self, z: Value) -> Value:
        """Write down the logits of a head with weight, bias and centre."""
        known = can_win(self)
        return masked((z - self.centre) @ self.weight.mT + torch.where(known, self.bias, 0), known)

    def _logits(self, z: Tensor) -> Tensor:
        return torch.addmm(self.bias, z.to(self.weight) - self.centre, self.weight.mT)

    def _as_linear(self, dtype: torch.dtype | None) -> nn.Linear:
        """Return the head as it is now as an ordinary layer, to put on the network."""
        bias = self.bias - self.weight @ self.centre
        return linear_layer(self.weight, bias.masked_fill(~can_win(self), -torch.inf), dtype)

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
        if "root" not in self._derived:
            self._derived["root"] = self._make_root()
        found: Tensor = self._derived["root"]
        return found

    def drop_learning(self) -> None:
        """Drop the factor, once it is in what measures distances."""
        self._derived.pop("root", None)

    def _make_root(self) -> Tensor:
        root = shared_root(self.statistics)
        return root if root is not None else torch.eye(self.in_features).to(self.statistics.mean)

    def _forget(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        self.statistics.remove(z, y, *weight)
        self._take_counts()

    def _forget_class(self, y: int) -> None:
        self.statistics.remove_class(y)

    def _check_batch(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, int]:
        seen = cast(Tensor, self._buffers["seen"])
        # Values of a batch that cannot wait are checked as they are added up, from where they lie.
        trusted = self._few + 1 if self._few else None
        return check_batch(z, y, self.in_features, seen.device, trusted)

    def _observe(self, z: Tensor, y: Tensor, most: int) -> None:
        if not self._wait(z, y, most):
            super()._observe(z, y, most)

    def _take(self, z: Tensor, y: Tensor, most: int, *weight: Tensor) -> None:
        if weight or not self._wait(z, y, most):
            super()._take(z, y, most, *weight)

    def _wait(self, z: Tensor, y: Tensor, most: int) -> bool:
        """Put a small batch of known classes aside, if there is room for it."""
        seen, own = cast(Tensor, self._buffers["seen"]), self.calibration
        # A calibration goes out of date with the change, or not at all: then nothing waits.
        if y.numel() > self._few or most >= seen.numel() or not (own is None or own.stale):
            return False
        if not (seen.is_cpu and y.is_cpu) or FORGOTTEN in self.records:
            return False
        if seen is not self._complete:  # a change of what was seen is always a new tensor
            if not seen.numpy()[y.numpy()].all():
                return False
            self._complete = seen if bool(seen.all()) else None
        self.__dict__["_stale"] = True  # nn.Module's way takes longer than what is done here
        return self._unfolded.wait(z, y)

    def _learn(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        self._unfolded.add(z, y, *weight)

    def _grow(self, n_classes: int) -> None:
        self._unfolded.grow(n_classes)
        super()._grow(n_classes)

    def _merge(self, other: Self) -> Self:
        merged = self._empty(0)
        merged._modules["statistics"] = self.statistics.merge(other.statistics)
        merged._take_counts()
        return merged

    def _rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        self.statistics.rearrange(classes, columns)
        self._take_counts()

    def _take_counts(self) -> None:
        self.seen = self.statistics.count > 0
        self._stale = True

    def _why_not(self, ability: str) -> str:
        if self.fades:
            return "what fades depends on the order of its data; without half_life it can"
        if ability == "leaves_out":
            return "some of its samples had weights that are no whole numbers"
        return f"{ONE_SCATTER}, or make the head with per_class_scatter=True"

    def _register(self) -> None:
        """Make buffers for what is solved anew by the first forward after a change."""
        for name in self.solution:
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64), persistent=False)


def check_budget(what: str, needed: int, budget: int, remedy: str) -> None:
    """Refuse statistics that take more bytes than the budget, and say what would help.

    >>> check_budget("width 10", 800, BUDGET, "choose a smaller width")
    """
    whole(budget, "a budget in bytes", least=1)
    if needed > budget:
        raise OptionError(
            f"statistics may take {size_in_words(budget)}, but {what} need "
            f"{size_in_words(needed)}: {remedy}, or make the head with budget={needed} if you have "
            "that much memory"
        )
