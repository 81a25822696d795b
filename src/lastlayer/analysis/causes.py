"""Causes of loss: the counts of ``repairs`` under their first names."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.arrays import Floats, Ints, takes_arrays, whole_numbers
from lastlayer.analysis.repairs import trace_losses
from lastlayer.arguments import expect, whole
from lastlayer.errors import LabelError

MOST_CLASSES = 10_000_000

CAUSES = ("weights", "interference", "either", "together")
"""What the last axis of ``causes_of_loss`` counts, in its order: ``REPAIRS`` by other names."""


def first_seen(tasks: Sequence[Ints], n_classes: int) -> NDArray[np.int64]:
    """Return the task, in the order of training, in which each class first came; −1 for never.

    >>> first_seen([np.array([0, 2, 2]), np.array([2, 1])], n_classes=4).tolist()
    [0, 1, 0, -1]
    """
    n_classes = whole(n_classes, "n_classes", least=0, most=MOST_CLASSES)
    expect(tasks, Sequence, "tasks", "a list of arrays")
    classes = [whole_numbers(task, "a task") for task in tasks]
    learned = np.full(n_classes, -1)
    for task, of_task in reversed(list(enumerate(classes))):
        if len(of_task) and not 0 <= of_task.min() <= of_task.max() < n_classes:
            raise LabelError(f"expected classes from 0 to {n_classes - 1} in task {task}")
        learned[of_task] = task
    return learned


@takes_arrays
def causes_of_loss(
    weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints
) -> NDArray[np.int64]:
    """Count the lost test samples by what would repair them: ``trace_losses(…).repairs``."""
    return trace_losses(weight, bias, z, y, learned).repairs
