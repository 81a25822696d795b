"""Causes of loss: was a sample lost to changed weights, to later classes, or to both together?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.arrays import Bools, Floats, Ints, at_least_single, check_samples
from lastlayer.errors import DataError, LabelError, ShapeError

CAUSES = ("weights", "interference", "either", "together")
"""What the last axis of ``causes_of_loss`` counts, in its order."""

_CAUSE_OF = np.array([[3, 1], [0, 2]])  # [right with old rows, right without later classes]


def first_seen(tasks: Sequence[Ints], n_classes: int) -> NDArray[np.int64]:
    """Give the task, in the order of training, in which each class first came; −1 for never.

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
    """Count the test samples lost after each task by class and cause: (T, C, 4), as ``CAUSES``.

    A sample is lost after task t if it was right at the end of the task in which its class came
    and is wrong now; all rows that there are compete, then and now. It is tried again with

    - R: each class seen then has its row and bias of then; the others are as now;
    - L: the classes not seen then are removed; rows and biases are as now.

    Right with R only: "weights" (their modification). With L only: "interference". With R and
    with L: "either". With neither: "together" (R and L at once would make it right, always). The
    sum over the last axis is what was lost. Of equal logits the first class wins.
    The cost is that of predicting all samples T + 1 times, once for each state and once for then.

    Args:
        weight: (T, C, h) the rows after each task, such that z·weight + bias ranks classes as
            the head does; for a head that normalises its rows, normalised.
        bias: (T, C), −∞ for a class that the head cannot predict yet.
        z: (n, h) features of test samples.
        y: (n,) their classes, 0…C−1.
        learned: (C,) the task in which each class first came, −1 for never (``first_seen``).

    Class 0 is right at first. Then its row is turned away, and class 1 arrives and lies closer:

    >>> weight = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.75, 0.0]]])
    >>> bias = np.array([[0.0, -np.inf], [0.0, 0.0]])
    >>> z, y = np.array([[1.0, 0.0]]), np.array([0])
    >>> counts = causes_of_loss(weight, bias, z, y, learned=np.array([0, 1]))
    >>> dict(zip(CAUSES, counts[1, 0].tolist()))
    {'weights': 0, 'interference': 0, 'either': 1, 'together': 0}
    """
    _check(weight, bias, z, y, learned)
    weight, bias, z = at_least_single(weight), at_least_single(bias), at_least_single(z)
    z, y, then = _right_at_first(weight, bias, z, y.astype(np.int64), learned)
    since = learned[y]
    n_classes = len(learned)
    counts = np.zeros((len(bias), n_classes * len(CAUSES)), dtype=np.int64)
    for task in range(1, len(bias)):
        n = int(np.searchsorted(since, task))  # samples of classes that came before it
        now = z[:n] @ weight[task].T + bias[task]
        lost = np.flatnonzero(now.argmax(axis=1) != y[:n])
        seen = (learned >= 0) & (learned <= since[lost, None])
        cause = _causes(then[lost], now[lost], seen, y[lost])
        counts[task] = np.bincount(y[lost] * len(CAUSES) + cause, minlength=counts.shape[1])
    return counts.reshape(len(bias), n_classes, len(CAUSES))


def _right_at_first(
    weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints
) -> tuple[Floats, Ints, Floats]:
    """Give z, y and logits of the samples right after their class was learned, in that order."""
    found = []
    for task in range(len(bias)):
        rows = np.flatnonzero(learned[y] == task)
        logits = z[rows] @ weight[task].T + bias[task]
        right = logits.argmax(axis=1) == y[rows]
        found.append((rows[right], logits[right]))
    rows = np.concatenate([rows for rows, _ in found])
    return z[rows], y[rows], np.concatenate([logits for _, logits in found])


def _causes(then: Floats, now: Floats, seen: Bools, y: Ints) -> Ints:
    """Try both repairs on lost samples, from (m, C) logits and which classes were seen then."""
    old_rows = np.where(seen, then, now).argmax(axis=1) == y
    no_later = np.where(seen, now, -np.inf).argmax(axis=1) == y
    cause: Ints = _CAUSE_OF[old_rows.astype(int), no_later.astype(int)]
    return cause


def _check(weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints) -> None:
    check_samples(z, y, weight)
    fit = weight.ndim == 3 and bias.shape == weight.shape[:2] and learned.shape == bias.shape[1:]
    if not fit or not len(bias):
        raise ShapeError(
            "expected weight (T, C, h), bias (T, C) and learned (C,) with T of at least 1, got "
            f"{weight.shape}, {bias.shape} and {learned.shape}"
        )
    if len(learned) and not -1 <= learned.min() <= learned.max() < len(bias):
        raise LabelError(
            f"expected tasks from 0 to {len(bias) - 1}, or −1, for when classes were learned, "
            f"got {learned.min()} to {learned.max()}"
        )
    if not np.isfinite(weight).all() or not (bias < np.inf).all():
        raise DataError("expected finite rows and biases below ∞: has this head diverged?")
