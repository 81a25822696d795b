"""The outcome of a run: right answers after every epoch, or a failure; and what is stored of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis import (
    FATES,
    INTERFERENCE,
    LOSS_PARTS,
    REPAIRS,
    after_each_task,
    average_forgetting,
    average_incremental_accuracy,
    backward_transfer,
    before_training,
    forward_transfer,
    share,
    share_of_all,
)
from lastlayer.results.store import Columns, Record
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

COUNTED = {  # array of (T, N, kinds) → the columns of its counts after the last task
    "fates": FATES,
    "repairs": tuple(f"repair_{name}" for name in REPAIRS),
    "interference": tuple(f"interference_{name}" for name in INTERFERENCE),
}


def columns_of(run: AnyRun, label: str) -> Columns:
    """Return the columns that describe a run; ``label`` is the column that its scenario learns."""
    return {
        "kind": run.kind,
        "features": run.features,
        "scenario": str(run.scenario),
        "label": label,
        "head": run.head,
        "mask": run.mask,
        "order": run.order,
        "seed": run.seed,
        **run.settings,
    }


def record(digest: str, outcome: Outcome) -> Record:
    """Return the outcome of a run, as it is stored."""
    if not isinstance(outcome, Result):
        return Record(digest, {"state": "failed", "message": outcome.message})
    n_classes = len(outcome.n_per_class)
    columns: dict[str, str | int | float | None] = {
        "state": "done",
        "n_classes": n_classes,
        "n_tasks": outcome.n_tasks,
        "epochs": outcome.epochs,
        "final": _number(outcome.final),
        "diverged": outcome.diverged,
    }
    columns |= {name: _number(value) for name, value in _measures(outcome).items()}
    for array, names in COUNTED.items():
        if array in outcome.insight:
            counts = outcome.insight[array][-1].sum(axis=0)
            columns |= dict(zip(names, map(int, counts), strict=True))
    if "images" in outcome.insight:
        columns["images"] = int(outcome.insight["images"].sum())
    if "lost_parts" in outcome.insight:
        columns |= _lost_shares(outcome.insight["lost_parts"][-1].sum(axis=0))
    arrays: dict[str, NDArray[Any]] = {
        "right_by_class": outcome.right_by_class.astype(np.int32),
        "right_by_task": outcome.right_by_task.astype(np.int32),
        "n_per_class": outcome.n_per_class,
        "n_per_task": outcome.n_per_task,
        "task_order": np.array(outcome.task_order),
        "arrived": outcome.arrived.astype(np.int32),
    }
    return Record(digest, columns, arrays | dict(outcome.insight))


def _measures(result: Result) -> Mapping[str, float]:
    """Return the continual measures, if there are several tasks with test rows for each."""
    if result.n_tasks == 1 or not len(result.n_per_task):
        return {}
    order = result.task_order
    matrix, before = (make(result.by_task, order) for make in (after_each_task, before_training))
    sizes = result.n_per_task[list(order)]
    return {
        "average": float(average_incremental_accuracy(matrix, sizes)),
        "forgetting": float(average_forgetting(matrix)),
        "backward_transfer": float(backward_transfer(matrix)),
        "forward_transfer": float(forward_transfer(matrix, before)),
    }


def _lost_shares(parts: NDArray[np.float64]) -> Columns:
    """Return the parts as shares of what was lost; none if nothing was lost."""
    lost = round(float(parts.sum()))
    shares = [float(part) / lost for part in parts] if lost else [None] * len(parts)
    names = (f"lost_share_{name}" for name in LOSS_PARTS)
    return {"lost": lost, **dict(zip(names, shares, strict=True))}


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
