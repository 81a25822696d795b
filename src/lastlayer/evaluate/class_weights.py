"""What rows weigh: by themselves, and by their classes, of a table or all the same."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import choice, real
from lastlayer.errors import OptionError
from lastlayer.heads import Head, options_of
from lastlayer.heads.changes import check_able
from lastlayer.heads.weights import check_weights

# Options by which a head gives all classes the same weight: read from its counts when it answers,
# so that the order of the data makes no difference.
_FROM_COUNTS = {"weigh": "classes", "prior": "uniform"}


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
