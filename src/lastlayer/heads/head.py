"""The contract of a head: ``observe`` learns from a batch, ``forward`` gives logits."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from lastlayer.catalogue import Abilities, able
from lastlayer.errors import (
    DataError,
    LabelError,
    MergeError,
    NotLearnedError,
    OptionError,
    ShapeError,
    UnsupportedError,
)
from lastlayer.files import write_tensors
from lastlayer.heads.resizable import Resizable

Preset = Literal["exact", "paper"]
MOST_CLASSES = 1_000_000  # a label beyond is an id, not a class
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@contextmanager
def learning() -> Iterator[None]:
    """Want no gradients, but ordinary tensors: those of inference mode could not be changed."""
    with torch.inference_mode(False), torch.no_grad():
        yield


class Head(Resizable, ABC):
    """A classifier that learns from a stream of batches, never told which task they are of.

    Classes are the integers 0…n_classes−1. They need not be declared: a head grows when a label
    beyond those it knows arrives. Everything learned is a parameter or a buffer.

    Args:
        in_features: the size h of a feature vector.
        n_classes: classes known beforehand (0: none).
        preset: "exact", or "paper" for the paper's method with its quirks.
        **options: what else the head was made with, kept for ``save``.
    """

    name: str
    passes: ClassVar[int | None]  # how often it may see an example; None: as often as asked
    seen: Tensor  # (n_classes,) bool: which classes have been observed

    def __init__(self, in_features: int, n_classes: int, preset: Preset, **options: Any) -> None:
        super().__init__()
        if in_features < 1:
            raise OptionError(f"expected in_features of at least 1, got {in_features}")
        if n_classes < 0:
            raise OptionError(f"expected n_classes of at least 0, got {n_classes}")
        if preset not in ("exact", "paper"):
            raise OptionError(f"expected preset 'exact' or 'paper', got '{preset}'")
        self.in_features = in_features
        self.preset: Preset = preset
        self.options = options
        self._stale = True
        self.register_buffer("seen", torch.zeros(n_classes, dtype=torch.bool))

    @property
    def n_classes(self) -> int:
        """How many classes there are: declared, or one more than the largest label seen."""
        return self.seen.numel()

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that would make such a head anew."""
        return {"in_features": self.in_features, "preset": self.preset, **self.options}

    @property
    def abilities(self) -> Abilities:
        """What it can do, made as it is; its card states the same of its default options."""
        return Abilities()

    def observe(self, z: Tensor, y: Tensor) -> None:
        """Learn from features ``z`` (n, h) with labels ``y`` (n,)."""
        z, y = self._check_features(z), self._check_labels(y, z.shape[0])
        if z.shape[0] == 0:
            return
        top = int(y.max()) + 1
        with learning():
            if top > self.n_classes:
                self._grow(top)
            self._learn(z, y)
            self.seen[y] = True
        self._stale = True

    def forward(self, z: Tensor) -> Tensor:
        """Give the logits (n, n_classes); under "exact" a class never seen gets −∞."""
        z = self._check_features(z)
        self._check_learned()
        self._refresh_if_stale()
        with torch.no_grad():
            logits = self._logits(z)
            if self.preset == "exact" and not bool(self.seen.all()):
                logits = logits.masked_fill(~self.seen, -torch.inf)
            return logits

    def predict(self, z: Tensor) -> Tensor:
        """Give the class (n,) with the largest logit, the lowest such class at a tie."""
        return self.forward(z).argmax(dim=-1)

    def merge(self, other: "Head") -> Self:
        """Give a new head, equal to one that had observed what both have."""
        if type(other) is not type(self) or other.settings != self.settings:
            raise MergeError(
                f"expected a '{self.name}' head made with {self.settings}, "
                f"got '{getattr(other, 'name', type(other).__name__)}' "
                f"with {getattr(other, 'settings', 'no settings')}"
            )
        self._check_able("merges", "be merged")
        with learning():
            return self._merge(other)

    def forget(self, z: Tensor, y: Tensor) -> None:
        """Make it as if the samples ``z`` (n, h) of classes ``y`` had never been observed."""
        self._check_able("forgets", "forget samples")
        z = self._check_features(z)
        y = self._check_labels(y, z.shape[0])
        if y.numel() and int(y.max()) >= self.n_classes:
            raise self._unknown_class(int(y.max()))
        with learning():
            self._forget(z, y)
        self._stale = True

    def forget_class(self, y: int) -> None:
        """Make it as if class ``y`` had never been observed."""
        self._check_able("forgets_class", "forget a class")
        if not (isinstance(y, int) and 0 <= y < self.n_classes):
            raise self._unknown_class(y)
        with learning():
            self._forget_class(y)
            self.seen[y] = False
        self._stale = True

    def as_linear(self, dtype: torch.dtype | None = None) -> nn.Linear:
        """Give an ordinary layer that predicts the same class: mean, median and slda have one.

        Args:
            dtype: of its parameters; None: PyTorch's default, float32.
        """
        raise UnsupportedError(
            f"a '{self.name}' head is no nn.Linear; mean, median and slda are, and heads trained "
            "by gradient have as_layer()"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the head to a safetensors file; ``load_head`` reads it again."""
        document = {"head": self.name, "settings": self.settings}
        write_tensors(path, "head", self.state_dict(), document)

    @abstractmethod
    def _learn(self, z: Tensor, y: Tensor) -> None:
        """Learn from a checked batch whose classes are all known."""

    @abstractmethod
    def _logits(self, z: Tensor) -> Tensor:
        """Give the logits of checked features, whichever classes have been seen."""

    def _refresh(self) -> None:
        """Recompute what follows from the data; called by the first forward after a change."""

    def _refresh_if_stale(self) -> None:
        if self._stale:
            with learning():
                self._refresh()
            self._stale = False

    def _grow(self, n_classes: int) -> None:
        """Make room for classes up to ``n_classes``; subclasses extend their own state too."""
        self.seen = torch.cat([self.seen, self.seen.new_zeros(n_classes - self.n_classes)])

    # What a head needs only if its abilities say so.

    def _merge(self, other: Self) -> Self:
        raise NotImplementedError

    def _forget(self, z: Tensor, y: Tensor) -> None:
        raise NotImplementedError

    def _forget_class(self, y: int) -> None:
        raise NotImplementedError

    def _check_able(self, ability: str, what: str) -> None:
        """Refuse what the head, made as it is, cannot do exactly; name the heads that can."""
        if not getattr(self.abilities, ability):
            raise UnsupportedError(
                f"this '{self.name}' head cannot {what} exactly: {self._why_not(ability)}; with "
                f"their default options these heads can: {', '.join(able(ability))}"
            )

    def _why_not(self, ability: str) -> str:
        """Say what stands in the way of an ability, and what to do about it."""
        return "what it has learned depends on the order of its data"

    def _check_features(self, z: Tensor) -> Tensor:
        if not isinstance(z, Tensor) or not z.is_floating_point():
            hint = "" if isinstance(z, Tensor) else "; torch.as_tensor makes one of an array"
            raise DataError(f"expected features as a floating-point tensor, got {_kind(z)}{hint}")
        if z.dim() != 2 or z.shape[1] != self.in_features:
            raise ShapeError(
                f"expected features of shape (n, {self.in_features}), got {tuple(z.shape)}"
            )
        # NaN and infinity show in the extremes, which are found fast and without a copy.
        if z.numel() and not all(math.isfinite(end) for end in z.aminmax()):
            bad = int((~torch.isfinite(z)).any(dim=1).sum())
            raise DataError(
                f"expected finite features, got NaN or infinity in {bad} of {len(z)} rows"
            )
        return z.detach().to(self.seen.device)

    def _check_labels(self, y: Tensor, n: int) -> Tensor:
        if not isinstance(y, Tensor) or y.dtype not in _INTEGERS:
            raise LabelError(f"expected labels as an integer tensor, got {_kind(y)}")
        if y.shape != (n,):
            raise ShapeError(f"expected {n} labels, one for each row, got shape {tuple(y.shape)}")
        least, most = map(int, y.aminmax()) if n else (0, 0)
        if least < 0:
            raise LabelError(f"expected labels from 0 upwards, got {least}")
        if most >= MOST_CLASSES:
            raise LabelError(
                f"expected classes numbered from 0 to below {MOST_CLASSES}, got {most}: "
                "number them, or use HeadClassifier, which takes any labels"
            )
        return y.to(device=self.seen.device, dtype=torch.int64)

    def _unknown_class(self, y: int) -> LabelError:
        return LabelError(f"expected a class from 0 to {self.n_classes - 1}, got {y}")

    def _check_learned(self) -> None:
        if not bool(self.seen.any()):
            raise NotLearnedError(
                f"this '{self.name}' head has learned nothing yet: call observe(z, y) first"
            )

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._stale = True


def _kind(x: object) -> str:
    return str(x.dtype) if isinstance(x, Tensor) else f"a {type(x).__name__}"
