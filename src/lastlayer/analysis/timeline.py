"""When tasks ended and classes came, tasks in the order they came."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.arrays import Floats, Ints, takes_arrays, whole_numbers
from lastlayer.arguments import expect, short, whole
from lastlayer.errors import LabelError, ShapeError

MOST_CLASSES = 10_000_000
MOST_POINTS = 130  # of a curve; with more, it has those at the ends of tasks


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
def after_each_task(by_task: Floats, order: Sequence[int]) -> Floats:
    """Return R (…, T, T): R[i, j] is the accuracy on the j-th task after training the i-th.

    Args:
        by_task: (…, 1 + T·E, T) accuracies before training, then after each of E epochs of each
            task in turn; columns are tasks by their number.
        order: The number of each task, in the order of training.

    >>> by_task = np.array([[0.1, 0.0], [0.2, 0.6], [0.3, 0.9], [0.4, 0.7], [0.8, 0.5]])
    >>> after_each_task(by_task, order=(1, 0)).tolist()
    [[0.9, 0.3], [0.5, 0.8]]
    """
    epochs = epochs_per_task(by_task, order)
    return by_task[..., epochs::epochs, whole_numbers(order, "order")]


@takes_arrays
def before_training(by_task: Floats, order: Sequence[int]) -> Floats:
    """Return the accuracy on each task before any training: (…, T), in the order of training.

    >>> by_task = np.array([[0.1, 0.0], [0.3, 0.9], [0.8, 0.5]])
    >>> before_training(by_task, order=(1, 0)).tolist()
    [0.0, 0.1]
    """
    epochs_per_task(by_task, order)
    return by_task[..., 0, whole_numbers(order, "order")]


@takes_arrays
def epochs_per_task(by_task: Floats, order: Sequence[int]) -> int:
    """Return E of (…, 1 + T·E, T), or say what does not fit.

    >>> epochs_per_task(np.zeros((11, 5)), order=range(5))
    2
    """
    numbers = whole_numbers(order, "order").tolist()
    n_tasks = len(numbers)
    if sorted(numbers) != list(range(n_tasks)):
        raise ShapeError(f"expected each task once in the order, got {short(tuple(numbers))}")
    if by_task.ndim < 2 or by_task.shape[-1] != n_tasks or not n_tasks:
        raise ShapeError(
            f"expected accuracies on each of {n_tasks} tasks, got the shape {by_task.shape}; where "
            "test data belong to no task there are none"
        )
    epochs, rest = divmod(int(by_task.shape[-2]) - 1, n_tasks)
    if rest or epochs < 1:
        raise ShapeError(
            f"expected accuracies before training and after each epoch of {n_tasks} tasks, "
            f"got {by_task.shape[-2]} rows"
        )
    return epochs
