"""What a stream of tasks must be for replay: new classes in each, and enough of them to keep."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lastlayer.errors import DataError, OptionError, ShapeError


def check_tasks(tasks: Sequence[Tensor], y: Tensor, per_class: int) -> None:
    """Refuse tasks for which replay balance is undefined, or the memory is too large.

    Args:
        tasks: the training rows of each task.
        y: (n,) the classes of all rows.
        per_class: how many samples the memory keeps for each class of a task.
    """
    if not tasks:
        raise DataError("expected at least one task, got none")
    known = torch.zeros(0, dtype=torch.int64)
    for task, rows in enumerate(tasks):
        _check_rows(task, rows, len(y))
        classes, counts = y[rows].unique(return_counts=True)
        if bool(torch.isin(classes, known).all()):
            raise DataError(
                f"expected task {task} to bring a class that no earlier task had, "
                f"got only {classes.tolist()}: replay balance compares new classes with old ones"
            )
        if int(counts.min()) < per_class:
            smallest = int(classes[counts.argmin()])
            raise OptionError(
                f"expected a memory no larger than a class, got {per_class} samples per class, "
                f"but class {smallest} has {int(counts.min())} in task {task}"
            )
        known = torch.cat([known, classes])


def _check_rows(task: int, rows: Tensor, n: int) -> None:
    if rows.dim() != 1 or rows.dtype != torch.int64:
        raise ShapeError(
            f"expected row numbers (n,) int64 in task {task}, got {tuple(rows.shape)} {rows.dtype}"
        )
    if not len(rows):
        raise DataError(f"expected at least one row in task {task}, got none")
    if int(rows.min()) < 0 or int(rows.max()) >= n:
        raise DataError(
            f"expected rows from 0 to {n - 1} in task {task}, "
            f"got {int(rows.min())} to {int(rows.max())}"
        )
