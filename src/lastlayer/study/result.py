"""The outcome of a run: right answers after every epoch, or the reason why it failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis import share, share_of_all
from lastlayer.study.run import AnyRun

Array: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Result:
    """Right answers on the test set: before training, then after each epoch of each task.

    Counts are −1 where a head could not predict or was not asked, and after it diverged.
    Accuracies go from 0 to 1, and are NaN there and where a class has no test samples.
    """

    run: AnyRun
    right_by_class: Counts  # (1 + T·E, N)
    right_by_task: Counts  # (1 + T·E, T), tasks as in order 0; (…, 0): test data are of no task
    n_per_class: Counts  # (N,) test samples
    n_per_task: Counts  # (T,) or (0,)
    task_order: tuple[int, ...]  # (T,) the number in order 0 of each task as it came
    arrived: Counts  # (N,) the place of the task in which a class first came, from 0; −1: in none
    diverged: int | None = None  # the step (of a network, the epoch) at which training diverged
    insight: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of analysis/, if asked for

    @property
    def accuracy(self) -> Array:
        """On the whole test set: (1 + T·E,)."""
        return share_of_all(self.right_by_class, self.n_per_class)

    @property
    def by_class(self) -> Array:
        """On each class: (1 + T·E, N)."""
        return share(self.right_by_class, self.n_per_class)

    @property
    def by_task(self) -> Array:
        """On each test task: (1 + T·E, T), tasks as in order 0."""
        return share(self.right_by_task, self.n_per_task)

    @property
    def n_tasks(self) -> int:
        """The number of tasks."""
        return len(self.task_order)

    @property
    def epochs(self) -> int:
        """The number of epochs of each task."""
        return (len(self.right_by_class) - 1) // self.n_tasks

    @property
    def final(self) -> float:
        """The accuracy on the whole test set at the end."""
        return float(self.accuracy[-1])


@dataclass(frozen=True)
class Failure:
    """A run that failed, and why."""

    run: AnyRun
    message: str


Outcome: TypeAlias = Result | Failure
