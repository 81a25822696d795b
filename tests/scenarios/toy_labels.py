"""Data that are labels alone: all that a scenario looks at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ToySplit:
    labels: Mapping[str, Tensor]
    label: str


@dataclass(frozen=True)
class ToyData:
    train: ToySplit
    test: ToySplit


def toy(
    train: Mapping[str, Sequence[int]], test: Mapping[str, Sequence[int]] | None = None
) -> ToyData:
    """Make data of columns of labels, the first one primary; the test split may be the same."""
    splits = (
        ToySplit({name: torch.tensor(list(v)) for name, v in columns.items()}, next(iter(train)))
        for columns in (train, train if test is None else test)
    )
    return ToyData(*splits)


def cifar100_like(copies: int = 2) -> ToyData:
    """100 fine classes, 5 in each of 20 coarse ones, not in the order of their numbers."""
    fine = [(37 * row) % 100 for row in range(100 * copies)]
    return toy({"fine": fine, "coarse": [(f * 3 + f // 20) % 20 for f in fine]})


def core50_like() -> ToyData:
    """50 objects in 11 sessions, sessions 3, 7 and 10 (numbered from 1) for testing."""

    def split(sessions: Sequence[int]) -> dict[str, list[int]]:
        rows = [(o, s) for s in sessions for o in range(50)]
        return {
            "object": [o for o, _ in rows],
            "category": [o // 5 for o, _ in rows],
            "session": [s for _, s in rows],
        }

    held_out = (2, 6, 9)
    return toy(split([s for s in range(11) if s not in held_out]), split(held_out))
