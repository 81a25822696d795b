"""The rows that a classifier learns: what they weigh, divided by its scale, and in batches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.core.checks import choice, real
from lastlayer.errors import OptionError
from lastlayer.evaluate.pool import EPOCHS, epochs_for, shuffled_batches
from lastlayer.heads import Head, options_of
from lastlayer.heads.changes import check_able
from lastlayer.heads.weights import check_weights

# Options by which a head gives all classes the same weight: read from its counts when it answers,
# so that the order of the data makes no difference.
_FROM_COUNTS = {"weigh": "classes", "prior": "uniform"}


class Divided:
    """Features (n, h), on disk or in memory, that are divided by a number when they are read.

    What a head is shown comes out of here and nowhere else, so that no verb can leave out the
    classifier's ``feature_scale``.
    """

    def __init__(self, z: Tensor | NDArray[Any], by: float) -> None:
        if isinstance(z, np.ndarray):  # torch wants it writable and without negative strides
            z = torch.from_numpy(np.require(z, requirements=["C", "W"]))
        self._z, self._by = z, by

    def __len__(self) -> int:
        return len(self._z)

    def __getitem__(self, rows: Any) -> Tensor:
        part = self._z[rows]
        return part if self._by == 1 else part.double() / self._by

    def split(self, size: int) -> Iterator[Tensor]:
        """Read them in their order, that many rows at a time."""
        return (self[start : start + size] for start in range(0, max(len(self), 1), size))


def batches(
    z: Divided,
    of: Sequence[Tensor],
    learned: Tensor,
    head: Head,
    random: np.random.RandomState,
    *,
    size: int,
    epochs: int | None,
    first: bool,
) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows to learn, (n,) bool, as often as a head wants to see them.

    With the features goes ``of``: their labels, and what else belongs to each row. Without
    ``epochs`` a head trained by gradient sees rows that come first as often as ``epochs_for`` says,
    and later ones as a large task.
    """
    if len(of) > 1:  # rows with weights fix a map at once: as many as it wants
        size = max(size, head.rows_to_begin)
    if head.passes is not None:
        for _ in range(head.passes):
            yield from in_order(z, of, size, learned)
        return
    usual = epochs_for([learned.nonzero()], size) if first else EPOCHS
    try:
        for epoch in range(epochs or usual):
            # A calibration that lives hears of each row once, when it is new.
            head._follows = epoch == 0
            yield from _shuffled(z, of, size, learned, random)
    finally:
        head._follows = True


def in_order(
    z: Divided, of: Sequence[Tensor], size: int, learned: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Yield rows in the order of the data; those on disk a batch at a time."""
    parts = (t.split(size) for t in (*of, learned))
    for *some, wanted in zip(z.split(size), *parts, strict=True):
        yield tuple(some) if wanted.all() else tuple(part[wanted] for part in some)


def _shuffled(
    z: Divided, of: Sequence[Tensor], size: int, learned: Tensor, random: np.random.RandomState
) -> Iterator[tuple[Tensor, ...]]:
    """Yield rows once, in random order."""
    place = learned.nonzero().flatten()
    generator = torch.Generator().manual_seed(int(random.randint(2**31)))
    for batch in shuffled_batches(len(place), size, generator):
        yield z[place[batch]], *(part[place[batch]] for part in of)


def balanced(head: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options with which a head's classes weigh the same, whatever their counts.

    >>> balanced("ridge", None)
    {'weigh': 'classes'}
    """
    wanted = {name: way for name, way in _FROM_COUNTS.items() if name in options_of(head)}
    for name, way in wanted.items():
        if (options or {}).get(name, way) != way:
            raise OptionError(f"class_weight 'balanced' is {name}='{way}': leave out one of both")
    return wanted


def weights_of(
    y: Tensor,
    given: Any,
    asked: Mapping[Any, float] | str | None,
    head: Head,
    labels: np.ndarray[Any, Any],
    whole: bool,
) -> tuple[Tensor, ...]:
    """Return what rows of classes y (n,) weigh, by themselves and by their classes; (): each 1.

    ``whole``: these are all the rows that are ever learned.
    """
    weight = None if given is None else check_weights(given, len(y))
    of = _of_classes(asked, head, y, labels, whole)
    if of is not None:
        weight = of[y] if weight is None else weight * of[y]
    return () if weight is None else (weight,)


def _of_classes(
    asked: Mapping[Any, float] | str | None,
    head: Head,
    codes: Tensor,
    labels: np.ndarray[Any, Any],
    whole: bool,
) -> Tensor | None:
    """Return what a sample of each of k labels weighs; None: as much as any."""
    if asked is None:
        return None
    check_able(head, "weighs", "weigh its classes")
    if isinstance(asked, Mapping):
        named = ((asked.get(x, 1.0), f"class_weight of {x!r}") for x in labels.tolist())
        of = [real(*one) for one in named]
        if min(of, default=0.0) < 0:
            raise OptionError(f"class_weight must be at least 0, got {min(of)}")
        return torch.tensor(of, dtype=torch.float64)
    choice(asked, ("balanced",), "class_weight")
    if head.passes is not None:  # its counts know it
        return None
    if not whole:
        raise OptionError(
            "class_weight 'balanced' of a head trained by gradient needs all rows at once: call "
            "fit, or pass a weight for each class"
        )
    counts = codes.bincount(minlength=len(labels)).double()
    return len(codes) / ((counts > 0).sum() * counts.clamp(min=1))
