"""Replay: which tasks it is defined for, what it keeps of one, and what an epoch trains on."""

from collections.abc import Sequence
from fractions import Fraction
from math import floor

import numpy as np
import torch
from torch import Tensor

from lastlayer.errors import DataError, OptionError, ShapeError

START, REMEMBER, REPLAY, SHUFFLE = range(4)  # what random numbers are for


def generator_for(purpose: int, seed: int, task: int = 0, epoch: int = 0) -> torch.Generator:
    """Return the generator for one purpose, seeded by its place in the run so none need be stored.

    >>> torch.rand(1, generator=generator_for(SHUFFLE, 3, task=1)).item() == torch.rand(
    ...     1, generator=generator_for(SHUFFLE, 3, task=1)
    ... ).item()
    True
    """
    state = np.random.SeedSequence((purpose, seed, task, epoch)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def remember(rows: Tensor, y: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Draw what is kept of a task: ``per_class`` × its classes, with replacement, from all of it.

    So a class is kept about ``per_class`` times, not exactly, and may be kept less often than
    another.
    """
    n = per_class * len(y[rows].unique())
    return rows[torch.randint(len(rows), (n,), generator=generator)]


def replayed(balance: float, largest: int) -> int:
    """Count the instances of an old class in an epoch: balance × the task's largest class.

    The product is exact for the decimal number that ``balance`` is written as; a half rounds up.

    >>> replayed(0.29, 50), replayed(0.01, 5000), replayed(0.001, 100)
    (15, 50, 0)
    """
    return floor(Fraction(str(balance)) * largest + Fraction(1, 2))


def with_replay(
    new: Tensor, memory: Tensor, y: Tensor, balance: float, generator: torch.Generator
) -> Tensor:
    """Return the rows of a task's epoch, each as often as it is trained on.

    Rows of the task are untouched. An old class (one in the memory but not in the task) appears
    ``replayed`` times: every remembered sample equally often, the rest drawn without replacement.
    """
    classes, counts = y[new].unique(return_counts=True)
    n = replayed(balance, int(counts.max()))
    old_classes = [c for c in y[memory].unique() if not bool((classes == c).any())]
    parts = [_resampled(memory[y[memory] == c], n, generator) for c in old_classes]
    return torch.cat([new, *parts])


def _resampled(rows: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Return n of these rows: each n // len(rows) times, and some of them once more."""
    times, rest = divmod(n, len(rows))
    return torch.cat(
        [rows.repeat(times), rows[torch.randperm(len(rows), generator=generator)[:rest]]]
    )


class ReplayStream:
    """What one network is trained on: the instances of each task, and their order in an epoch.

    The memory of a task is drawn after it, the instances of an epoch are chosen once for a task,
    and each epoch reshuffles them.
    """

    def __init__(
        self, tasks: Sequence[Tensor], y: Tensor, per_class: int, balance: float, seed: int
    ) -> None:
        self.seed = seed
        self.rows: list[Tensor] = []
        memory = tasks[0][:0]
        for task, new in enumerate(tasks):
            draw = generator_for(REPLAY, seed, task)
            self.rows.append(with_replay(new, memory, y, balance, draw))
            kept = remember(new, y, per_class, generator_for(REMEMBER, seed, task))
            memory = torch.cat([memory, kept])

    def order(self, task: int, epoch: int) -> Tensor:
        """Return the rows of an epoch in the order in which they are trained on."""
        rows = self.rows[task]
        shuffle = generator_for(SHUFFLE, self.seed, task, epoch)
        return rows[torch.randperm(len(rows), generator=shuffle)]


def check_tasks(tasks: Sequence[Tensor], y: Tensor, per_class: int) -> None:
    """Refuse tasks for which replay balance is undefined, or the memory is too large."""
    if not tasks:
        raise DataError("there must be at least one task, got none")
    known = torch.zeros(0, dtype=torch.int64)
    for task, rows in enumerate(tasks):
        _check_rows(task, rows, len(y))
        classes, counts = y[rows].unique(return_counts=True)
        if bool(torch.isin(classes, known).all()):
            raise DataError(
                f"task {task} must have a class that no earlier task had, got only "
                f"{classes.tolist()}: replay balance compares new classes with old ones"
            )
        if int(counts.min()) < per_class:
            smallest = int(classes[counts.argmin()])
            raise OptionError(
                f"per_class must be at most the size of the smallest class, got {per_class}, but "
                f"class {smallest} has {int(counts.min())} samples in task {task}"
            )
        known = torch.cat([known, classes])


def _check_rows(task: int, rows: Tensor, n: int) -> None:
    if rows.dim() != 1 or rows.dtype != torch.int64:
        raise ShapeError(
            f"the rows of task {task} must be (n,) int64, got {tuple(rows.shape)} {rows.dtype}"
        )
    if not len(rows):
        raise DataError(f"task {task} must have at least one row, got none")
    if int(rows.min()) < 0 or int(rows.max()) >= n:
        raise DataError(
            f"the rows of task {task} must be from 0 to {n - 1}, "
            f"got {int(rows.min())} to {int(rows.max())}"
        )
