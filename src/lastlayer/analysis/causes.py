"""Causes of loss: the counts of ``repairs`` under their first names."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.arrays import Floats, Ints
from lastlayer.analysis.repairs import trace_losses

CAUSES = ("weights", "interference", "either", "together")
"""What the last axis of ``causes_of_loss`` counts, in its order: ``REPAIRS`` by other names."""


def first_seen(tasks: Sequence[Ints], n_classes: int) -> NDArray[np.int64]:
    """Return the task, in the order of training, in which each class first came; −1 for never.

    >>> first_seen([np.array([0, 2, 2]), np.array([2, 1])], n_classes=4).tolist()
    [0, 1, 0, -1]
    """
    learned = np.full(n_classes, -1)
    for task in reversed(range(len(tasks))):
        learned[tasks[task]] = task
    return learned


def causes_of_loss(
    weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints
) -> NDArray[np.int64]:
    """Count the lost test samples by what would repair them: ``trace_losses(…).repairs``."""
    return trace_losses(weight, bias, z, y, learned).repairs
