"""A scenario: which rows of the data come in which task, in which order, with which labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import expect, kind_of, whole
from lastlayer.core.names import look_up
from lastlayer.core.tensors import check_dense
from lastlayer.errors import ArgumentError, DataError, LabelError, OptionError

# More values in a label column are ids, not classes or sessions.
MOST_VALUES = 10_000_000
# More tasks are a mistake: an order is a list of as many numbers.
MOST_TASKS = 1_000_000


class Split(Protocol):
    """What a scenario needs from a split: named columns of labels, one of them primary."""

    @property
    def labels(self) -> Mapping[str, Tensor]:
        """Each (n,) int64."""

    @property
    def label(self) -> str:
        """The primary column."""


class Data(Protocol):
    """What a scenario needs from the data: a training and a test split."""

    @property
    def train(self) -> Split:
        """The training rows."""

    @property
    def test(self) -> Split:
        """The test rows."""


@dataclass(frozen=True, eq=False, repr=False)
class Scenario:
    """Row indices per task; the data themselves are neither copied nor held.

    >>> from lastlayer import load_features, make_scenario
    >>> data = load_features("cifar10")
    >>> scenario = make_scenario("cifar10", data, order=1)
    >>> scenario
    Scenario(cifar10: 10 classes, tasks of 10000, 10000, 10000, 10000, 10000 rows)
    >>> scenario.n_tasks, scenario.n_classes, scenario.order
    (5, 10, (2, 1, 4, 0, 3))
    >>> data.train.labels[scenario.label][scenario.tasks[0]].unique()
    tensor([4, 5])
    """

    name: str
    label: str  # the column that is learned
    n_classes: int
    tasks: tuple[Tensor, ...]  # training rows of each task, in the order in which they come
    test_tasks: tuple[Tensor, ...] | None  # test rows of each task; None: they belong to no task
    order: tuple[int, ...]  # the number that each task has in order 0

    def __post_init__(self) -> None:
        """Refuse anything but lists of rows, and a task without rows."""
        expect(self.tasks, tuple, "tasks", "a tuple of rows, one for each task")
        expect(self.order, tuple, "order", "a tuple of numbers")
        expect(self.test_tasks, (tuple, type(None)), "test_tasks", "a tuple of rows, or None")
        if len(self.order) != len(self.tasks):
            raise OptionError(
                f"order must have a number for each of the {len(self.tasks)} tasks, got "
                f"{len(self.order)}"
            )
        for rows in (*self.tasks, *(self.test_tasks or ())):
            expect(rows, Tensor, "the rows of a task", "a tensor")
            check_dense(rows, "the rows of a task")
            if rows.dtype != torch.int64 or rows.dim() != 1:
                raise LabelError(
                    "the rows of a task must have shape (n,) and type int64, got "
                    f"{tuple(rows.shape)} {rows.dtype}"
                )
        for number, rows in zip(self.order, self.tasks, strict=True):
            if not len(rows):
                raise DataError(f"every task must have training rows, but task {number} has none")

    def __repr__(self) -> str:
        sizes = ", ".join(str(len(rows)) for rows in self.tasks)
        return f"Scenario({self.name}: {self.n_classes} classes, tasks of {sizes} rows)"

    @property
    def n_tasks(self) -> int:
        """The number of tasks."""
        return len(self.tasks)


def check_seed(name: str, seed: int) -> int:
    """Return a seed that numpy's generator accepts, or raise an error that gives its range."""
    return whole(seed, name, least=0, most=2**32 - 1)


def task_order(n_tasks: int, seed: int) -> tuple[int, ...]:
    """Return the paper's order of tasks: unchanged for seed 0, else numpy's legacy permutation.

    Classes never move between tasks.

    >>> task_order(5, seed=0)
    (0, 1, 2, 3, 4)
    >>> task_order(5, seed=1)
    (2, 1, 4, 0, 3)
    """
    n_tasks = whole(n_tasks, "a number of tasks", least=1, most=MOST_TASKS)
    seed = check_seed("an order", seed)
    if seed == 0:
        return tuple(range(n_tasks))
    return tuple(np.random.RandomState(seed).permutation(n_tasks).tolist())


def column(split: Split, name: str) -> Tensor:
    """Return a label column, checked."""
    labels = look_up(name, split.labels, "label column")
    expect(labels, Tensor, f"label column '{name}'", "a tensor")
    check_dense(labels, f"label column '{name}'")
    if labels.dtype != torch.int64 or labels.dim() != 1 or not len(labels) or labels.min() < 0:
        raise LabelError(f"label column '{name}' must hold whole numbers (int64) of at least 0")
    if labels.max() >= MOST_VALUES:
        raise LabelError(
            f"values of label column '{name}' must be below {MOST_VALUES}, got "
            f"{int(labels.max())}: number them from 0"
        )
    return labels


def learned(data: Data, label: str | None) -> str:
    """Return the column that is learned, the primary one if none is named; check the data."""
    try:
        tables, primary = (data.train.labels, data.test.labels), data.train.label
        fit = all(isinstance(table, Mapping) for table in tables)
    except Exception:  # an object may raise anything
        fit = False
    if not fit:
        raise ArgumentError(
            f"data must be Features, or have train and test splits with labels, got {kind_of(data)}"
        )
    if label is not None:
        expect(label, str, "label", "the name of a label column")
    return primary if label is None else label


def count_values(data: Data, name: str) -> int:
    """Count the values 0…N−1 that a label column can have; test data need not have the column."""
    splits = [data.train, data.test] if name in data.test.labels else [data.train]
    return 1 + max(int(column(split, name).max()) for split in splits)


def count_classes(data: Data, label: str) -> int:
    """Count the classes of the column that is learned, which both splits must have."""
    column(data.test, label)
    return count_values(data, label)


def lay_out(name: str, data: Data, *, label: str, by: str, task_of: Tensor, order: int) -> Scenario:
    """Make the scenario in which ``task_of[v]`` is the task of all rows with value v in ``by``.

    Values with task −1 belong to no task. Where some task has no test rows, test rows are not
    assigned to tasks at all: heads are then measured on the whole test set only.
    """
    permutation = task_order(int(task_of.max()) + 1, order)
    train, test = (_rows_per_task(split, by, task_of) for split in (data.train, data.test))
    return Scenario(
        name=name,
        label=label,
        n_classes=count_classes(data, label),
        tasks=tuple(train[task] for task in permutation),
        test_tasks=tuple(test[task] for task in permutation) if all(map(len, test)) else None,
        order=permutation,
    )


def _rows_per_task(split: Split, by: str, task_of: Tensor) -> tuple[Tensor, ...]:
    """Group rows by their task, ascending, without those of none; a split may lack the column."""
    values = column(split, by) if by in split.labels else torch.arange(0)
    groups = task_of[values] + 1
    sizes = groups.bincount(minlength=int(task_of.max()) + 2)
    _, *rows = groups.argsort(stable=True).split(sizes.tolist())
    return tuple(rows)
