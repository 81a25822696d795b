"""Accuracies over time: from counts, when tasks ended and classes came, how a task is forgotten."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.inputs import Floats, Ints, takes_arrays, whole_numbers
from lastlayer.core.checks import expect, short, whole
from lastlayer.errors import LabelError, ShapeError

MOST_CLASSES = 10_000_000
MOST_POINTS = 130  # of a curve; with more, it has those at the ends of tasks


@takes_arrays
def share(right: Ints, of: Ints) -> NDArray[np.float64]:
    """Turn counts of right answers into accuracies; −1, and a share of nothing, become NaN.

    >>> share(np.array([[3, 0], [-1, -1]]), np.array([4, 0])).tolist()
    [[0.75, nan], [nan, nan]]
    """
    _check_counts(right, of)
    known = (right >= 0) & (of > 0)
    return np.where(known, right / np.maximum(of, 1), np.nan)


@takes_arrays
def share_of_all(right: Ints, of: Ints) -> NDArray[np.float64]:
    """Return the accuracy on all classes together: (…) from right answers (…, N) of (N,) samples.

    >>> share_of_all(np.array([[3, 0], [-1, -1]]), np.array([4, 4])).tolist()
    [0.375, nan]
    """
    _check_counts(right, of)
    if right.ndim < 1 or of.ndim != 1:
        raise ShapeError(f"counts must be (…, N) of (N,) samples, got {right.shape}, {of.shape}")
    whole = np.where((right < 0).any(axis=-1), -1, right.sum(axis=-1))
    return share(whole, of.sum())


def _check_counts(right: Ints, of: Ints) -> None:
    try:
        np.broadcast_shapes(right.shape, of.shape)
    except ValueError:
        raise ShapeError(
            f"counts must be of the same samples, got the shapes {right.shape} and {of.shape}"
        ) from None


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
            raise LabelError(f"classes of task {task} must be from 0 to {n_classes - 1}")
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
        raise ShapeError(f"order must hold each task once, got {short(tuple(numbers))}")
    if by_task.ndim < 2 or by_task.shape[-1] != n_tasks or not n_tasks:
        raise ShapeError(
            f"by_task must have a column for each of {n_tasks} tasks, got the shape "
            f"{by_task.shape}; where test data belong to no task there are none"
        )
    epochs, rest = divmod(int(by_task.shape[-2]) - 1, n_tasks)
    if rest or epochs < 1:
        raise ShapeError(
            f"by_task must have a row before training and one after each epoch of {n_tasks} "
            f"tasks, got {by_task.shape[-2]} rows"
        )
    return epochs


@takes_arrays
def accuracy_since_learned(by_task: Floats, order: Sequence[int], nth: int = 0) -> Floats:
    """Return the accuracy on the nth task after its last epoch and after each epoch that follows.

    That is (…, 1 + (T − 1 − nth)·E); arguments are those of ``after_each_task``, and tasks count
    from 0. With ``nth=0`` this is the appendix's figure of the first task in a lifelong scenario.

    >>> by_task = np.array([[0.1, 0.0], [0.2, 0.6], [0.3, 0.9], [0.4, 0.7], [0.8, 0.5]])
    >>> accuracy_since_learned(by_task, order=(1, 0)).tolist()
    [0.9, 0.7, 0.5]
    """
    epochs = epochs_per_task(by_task, order)
    nth = whole(nth, "a task", least=0, most=len(order) - 1)
    return by_task[..., (nth + 1) * epochs :, whole_numbers(order, "order")[nth]]


@takes_arrays
def forgotten(by_task: Floats, order: Sequence[int], nth: int = 0) -> Floats:
    """Return how much of the nth task's accuracy has been lost since it was learned.

    The accuracy after its last epoch minus the accuracy after each later epoch; below 0 where
    later tasks helped. Arguments and shape are those of ``accuracy_since_learned``.

    >>> by_task = np.array([[0.1, 0.0], [0.25, 0.75], [1.0, 0.5]])
    >>> forgotten(by_task, order=(1, 0)).tolist()
    [0.0, 0.25]
    """
    accuracy = accuracy_since_learned(by_task, order, nth)
    return accuracy[..., :1] - accuracy
