"""What comes of a run: accuracies after every epoch, or the reason why there are none."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lastlayer.study.run import Run

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Result:
    """Accuracies from 0 to 1: before training, then after each epoch of each task.

    NaN stands where a head could not predict, where a class has no test samples, and for
    everything after a divergence.
    """

    run: Run
    accuracy: Array  # (1 + T·E,) on the whole test set
    by_class: Array  # (1 + T·E, N)
    by_task: Array  # (1 + T·E, T), tasks as in order 0; (…, 0) where test data belong to no task
    n_per_class: NDArray[np.int64]  # (N,) test samples
    task_order: tuple[int, ...]  # (T,) the number in order 0 of each task as it came
    diverged: int | None  # the step that left the finite numbers

    @property
    def n_tasks(self) -> int:
        """How many tasks there were."""
        return len(self.task_order)

    @property
    def epochs(self) -> int:
        """How many epochs each task had."""
        return (len(self.accuracy) - 1) // self.n_tasks

    @property
    def final(self) -> float:
        """The accuracy on the whole test set at the end."""
        return float(self.accuracy[-1])


@dataclass(frozen=True)
class Failure:
    """A run that could not be made, and why."""

    run: Run
    message: str


def share(right: NDArray[np.int64], of: NDArray[np.int64]) -> Array:
    """Turn counts of right answers into accuracies; −1, and a share of nothing, become NaN.

    >>> share(np.array([[3, 0], [-1, -1]]), np.array([4, 0])).tolist()
    [[0.75, nan], [nan, nan]]
    """
    known = (right >= 0) & (of > 0)
    return np.where(known, right / np.maximum(of, 1), np.nan)
