"""Rows that are held out to judge by: a part of each class in each task, sources kept whole."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lastlayer.advice.course import Course
from lastlayer.errors import DataError

PART = 0.2  # of the rows is held out
FEW = 2000  # with fewer rows held out, splits are repeated
MOST_SPLITS = 10
MOST_HELD = 20_000  # more rows would cost time and tell no more
MOST_LOGITS = 4e8  # nor more rows × classes, as long as 2,000 rows are left


@dataclass(frozen=True, eq=False)
class Split:
    """The rows that are learned from, and those that are judged by."""

    tasks: tuple[Tensor, ...]  # training rows of each task; some may have none
    held: Tensor  # rows to judge by
    held_z: Tensor | None = None  # (m, h) their features, where they are not in the course's

    def held_of(self, z: Tensor) -> Tensor:
        """Return the features (m, h) of the rows to judge by."""
        return z[self.held] if self.held_z is None else self.held_z


def splits_of(course: Course, seed: int = 0, n: int | None = None) -> list[Split]:
    """Hold out a fifth of the rows, several times where that is few.

    Args:
        course: the stream.
        seed: decides which rows.
        n: how many splits; None: one, or with fewer than 2,000 held-out rows as many as make
            2,000 of them, from 5 to 10. Five in a row hold out each row once.
    """
    task, rows = course.task_of, course.rows
    most = min(MOST_HELD, max(FEW, MOST_LOGITS / course.n_classes))
    part = min(PART, most / len(rows))
    made: list[Split] = []
    wanted = n or 1
    while len(made) < wanted:
        number = len(made)
        held = hold_out(
            course.y[rows],
            task[rows],
            None if course.group is None else course.group[rows],
            part=part,
            turn=number,
            seed=seed + number // round(1 / PART),
        )
        made.append(_split(course, rows[held]))
        if n is None and not number:
            wanted = _how_many(len(made[0].held))
    return made


def _how_many(held: int) -> int:
    return 1 if held >= FEW else min(MOST_SPLITS, max(5, math.ceil(FEW / held)))


def _split(course: Course, held: Tensor) -> Split:
    if not len(held):
        why = "each class has a single row" if course.group is None else "one source holds them all"
        raise DataError(f"expected rows that can be held out to compare heads on, got none: {why}")
    out = torch.zeros(len(course.y), dtype=torch.bool)
    out[held] = True
    return Split(tuple(rows[~out[rows]] for rows in course.tasks), held)


def hold_out(
    y: Tensor, task: Tensor, group: Tensor | None, *, part: float, turn: int, seed: int
) -> Tensor:
    """Return which rows are held out, (n,) bool: about that part of each class in each task.

    A class keeps at least one row to be learned from. Turns 0, 1, … 1/part − 1 of one seed hold
    out each row once, except for those that classes keep.

    >>> y = torch.tensor([0] * 10 + [1] * 5 + [2])
    >>> held = hold_out(y, torch.zeros(16, dtype=torch.int64), None, part=0.2, turn=0, seed=0)
    >>> y[held].tolist()
    [0, 0, 1]
    """
    n = len(y)
    unit = torch.arange(n) if group is None else group.unique(return_inverse=True)[1]
    n_units = int(unit.max()) + 1
    first = torch.full((n_units,), n).scatter_reduce_(0, unit, torch.arange(n), "amin")
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(n_units, generator=generator)
    cell = (task * (int(y.max()) + 1) + y)[first]  # of its first row, where a source has many
    order = shuffled[cell[shuffled].argsort(stable=True)]
    # Walk through rows or sources in that order and take one whenever a whole part has gone by.
    passed = part * torch.arange(1, len(order) + 1, dtype=torch.float64) + (turn * part) % 1
    taken = torch.zeros(n_units, dtype=torch.bool)
    taken[order] = (passed + 1e-9).floor() > (passed - part + 1e-9).floor()
    return _classes_kept(y, unit, taken)[unit]


def _classes_kept(y: Tensor, unit: Tensor, taken: Tensor) -> Tensor:
    """Put a source back for each class that would have no row left to learn from."""
    while True:
        n_classes = int(y.max()) + 1
        left = y[~taken[unit]].bincount(minlength=n_classes)
        lost = (left == 0)[y]
        if not bool(lost.any()):
            return taken
        one = torch.zeros(n_classes, dtype=torch.int64)
        one[y[lost]] = unit[lost]
        taken = taken.clone()
        taken[one[y[lost].unique()]] = False
