"""Scenarios of the library Continuum turned into ours: rows per task, from its task labels."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import expect, kind_of
from lastlayer.errors import (
    ArgumentError,
    LabelError,
    LastLayerError,
    OptionError,
    UnsupportedError,
)
from lastlayer.scenarios.scenario import Scenario

Array = np.ndarray[Any, Any]


def from_continuum(train: Any, test: Any, label: str = "y") -> Scenario:
    """Turn a pair of Continuum's scenarios, for training and for testing, into one of ours.

    A row is the position of a sample in the data that Continuum holds. ``create_subscenario``
    reorders the data: to keep track of rows, pass row numbers as the data,
    ``InMemoryDataset(np.arange(len(y)), y)``; rows are then these numbers, whatever Continuum does
    with them. Features in an h5 file keep their rows anyway.

    Args:
        train: A scenario of Continuum, with its tasks in the order to be learned.
        test: Its counterpart; if it has one task where train has several, test rows have no task.
        label: The column of your features that holds Continuum's classes.

    >>> class Halves:  # what a scenario of Continuum has: data, classes, tasks
    ...     dataset = np.arange(4), np.array([0, 1, 0, 1]), np.array([1, 1, 0, 0])
    ...     def __len__(self):
    ...         return 2
    >>> from_continuum(Halves(), Halves()).tasks
    (tensor([2, 3]), tensor([0, 1]))
    """
    expect(label, str, "label", "the name of a column")
    try:
        return _convert(train, test, label)
    except LastLayerError:
        raise
    except Exception as error:  # anything but a scenario of Continuum may raise anything
        raise ArgumentError(
            f"train and test must be scenarios of Continuum, got {kind_of(train)} and "
            f"{kind_of(test)}: {error}"
        ) from error


def _convert(train: Any, test: Any, label: str) -> Scenario:
    tasks, test_tasks = _rows_per_task(train), _rows_per_task(test)
    if len(test_tasks) not in (1, len(tasks)):
        raise OptionError(
            f"the test scenario must have {len(tasks)} tasks as train, or one, got "
            f"{len(test_tasks)}"
        )
    return Scenario(
        name="continuum",
        label=label,
        n_classes=1 + max(_top_class(train), _top_class(test)),
        tasks=tasks,
        test_tasks=test_tasks if len(test_tasks) == len(tasks) else None,
        order=tuple(range(len(tasks))),
    )


def _rows_per_task(scenario: Any) -> tuple[Tensor, ...]:
    if hasattr(scenario, "inc_trsf"):
        raise UnsupportedError(
            "each task of this scenario transforms the same data: extract features of every task, "
            "and use mixed with a column that names the task"
        )
    if hasattr(scenario, "dataset"):
        rows = _by_task_label(scenario.dataset, len(scenario))
    else:
        rows = _by_task_set([scenario[task] for task in range(len(scenario))])
    return tuple(torch.from_numpy(found.astype(np.int64)) for found in rows)


def _by_task_label(dataset: tuple[Any, Array, Array], n_tasks: int) -> list[Array]:
    x, _, t = dataset
    if t.ndim != 1:
        raise UnsupportedError(f"a sample must have one task, got task labels of shape {t.shape}")
    rows = [np.flatnonzero(t == task) for task in range(n_tasks)]
    if isinstance(x, np.ndarray) and x.ndim == 1 and x.dtype.kind in "iu":
        return [x[found] for found in rows]
    return rows


def _by_task_set(tasks: list[Any]) -> list[Array]:
    """Return the rows of tasks that share one h5 file; other data sets are joined end to end."""
    if len({getattr(task, "h5_filename", task) for task in tasks}) == 1:
        return [np.asarray(task.data_indexes) for task in tasks]
    ends = np.cumsum([len(task) for task in tasks])
    return [np.arange(end - len(task), end) for task, end in zip(tasks, ends, strict=True)]


def _top_class(scenario: Any) -> int:
    """Return the largest class, after checking that classes are numbers from 0."""
    tasks = range(len(scenario))
    parts = (
        [scenario.dataset[1]] if hasattr(scenario, "dataset") else [scenario[i]._y for i in tasks]
    )
    y = np.concatenate([np.asarray(part) for part in parts])
    if not len(y) or (y != y.astype(np.int64)).any() or y.min() < 0:
        raise LabelError("classes of Continuum's scenario must be whole numbers of at least 0")
    return int(y.max())
