"""Classes that are one: rows of two labels that cannot be told apart at all."""

import math
from typing import NamedTuple

from torch import Tensor

FEWEST = 10  # rows of a class before anything is said of it


class ClassPair(NamedTuple):
    """Two classes, and the share of their rows that is nearer to its own than to the other."""

    one: int
    other: int
    told_apart: float  # the mean over both classes; one half: by chance


def count_beaten(beaten: Tensor, logits: Tensor, y: Tensor) -> None:
    """Add, in place, how often rows of a class have a larger logit for another (k, k)."""
    own = logits.gather(1, y[:, None])
    beaten.index_add_(0, y, (logits > own).double() + 0.5 * (logits == own).double())


def classes_that_are_one(beaten: Tensor, counts: Tensor) -> list[ClassPair]:
    """Return pairs of classes that are told apart no better than by chance.

    A pair is one unless more rows are right than 19 in 20 times, were each decided by a coin.

    >>> import torch
    >>> beaten = torch.tensor([[0.0, 48.0, 1.0], [52.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    >>> [(pair.one, pair.other) for pair in classes_that_are_one(beaten, torch.tensor([100] * 3))]
    [(0, 1)]
    """
    share = beaten / counts[:, None].double().clamp(min=1)
    right = 1 - (share + share.mT) / 2
    rows = 1 / counts.double().clamp(min=1)
    chance = 0.5 + 1.645 * ((rows[:, None] + rows) / 16).sqrt()
    enough = counts >= FEWEST
    one = (right < chance) & enough[:, None] & enough
    found = [
        ClassPair(i, j, float(right[i, j])) for i, j in one.triu(diagonal=1).nonzero().tolist()
    ]
    return sorted(found, key=lambda pair: (pair.told_apart, pair.one, pair.other))


def is_no_better(right: float, n: int, guess: float) -> bool:
    """Return whether a share of n rows that are right is no better than a guess is."""
    return right <= guess + 1.645 * math.sqrt(max(guess * (1 - guess), 1e-12) / max(n, 1))
