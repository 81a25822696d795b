"""What was lost, divided by Shapley values among changed weights, later classes and drift."""

from math import comb

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.inputs import (
    Bools,
    Floats,
    Ints,
    at_least_single,
    check_states,
    takes_arrays,
)
from lastlayer.errors import DataError, ShapeError

LOSS_PARTS = ("weights", "interference", "drift")
"""What the last axis of ``loss_parts`` holds, in its order."""


@takes_arrays
def shapley_values(right: Bools) -> NDArray[np.float64]:
    """Return each lost sample's Shapley value for each of k repairs: (n, k), each row sums to 1.

    φ_j = Σ_S |S|! (k − 1 − |S|)! / k! · (right with S and j − right with S), over the sets S of
    the other repairs (Shapley 1953): what j adds, on average over all orders in which the repairs
    can be made. A value below 0 means that the repair mostly does harm.

    Args:
        right: (n, 2, …, 2), one axis for each repair: whether the sample is right with the
            repair (1) or without it (0). Without any, every sample is wrong; with all, right.

    >>> either_will_do = [[False, True], [True, True]]
    >>> only_the_first = [[False, False], [True, True]]
    >>> shapley_values(np.array([either_will_do, only_the_first])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    k = right.ndim - 1
    if k < 1 or right.shape[1:] != (2,) * k:
        raise ShapeError(f"right must have the shape (n, 2, …, 2), got {right.shape}")
    table = right.reshape(len(right), 2**k)
    if table[:, 0].any() or not table[:, -1].all():
        raise DataError("samples must be wrong without any repair and right with all of them")
    others = np.indices((2,) * (k - 1)).sum(axis=0).ravel()  # |S| of each S
    chance = np.array([1 / (k * comb(k - 1, int(size))) for size in others])
    worth = right.astype(np.float64)
    gains = [np.diff(worth, axis=1 + j).reshape(len(right), 2 ** (k - 1)) for j in range(k)]
    return np.stack([gain @ chance for gain in gains], axis=1)


@takes_arrays
def shapley_shares(right: Bools) -> NDArray[np.float64]:
    """Return the mean Shapley value of each repair over the lost samples: (k,), they sum to 1.

    NaN where nothing was lost. The argument is that of ``shapley_values``.

    >>> either_will_do = [[False, True], [True, True]]
    >>> only_the_first = [[False, False], [True, True]]
    >>> shapley_shares(np.array([either_will_do, only_the_first])).tolist()
    [0.75, 0.25]
    """
    values = shapley_values(right)
    if not len(values):
        return np.full(values.shape[1], np.nan)
    shares: NDArray[np.float64] = values.mean(axis=0)
    return shares


@takes_arrays
def loss_parts(
    weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints
) -> NDArray[np.float64]:
    """Divide the test samples lost after each task among their causes: (T, C, 3).

    For a network that is trained end to end, whose features change too. *Then* is the end of the
    task in which a sample's class arrived, *now* the end of task t. A sample is lost if it was
    right then and is wrong now, with all rows competing both times. It is tried again with each
    combination of three repairs:

    - R: each class seen then gets back the row and bias it had then; the others stay as now;
    - L: the classes not seen then are removed;
    - Z: the sample gets back the features it had then.

    Without any repair it is wrong, since it is lost. With all three it is right, since it was right
    then among even more classes. Its Shapley values say what each repair adds
    (``shapley_values``); they sum to 1, so the sum over the last axis is the number of samples
    lost. Of equal logits, the first class wins. Where features never change, the share of drift is
    0; where the rows of learned classes never change, that of weights is 0.

    Args:
        weight: (T, C, h) the rows after each task, such that z·weight + bias ranks classes as
            the layer does; for a layer that normalises its rows, normalised.
        bias: (T, C), finite.
        z: (T, n, h) features of the same test samples after each task.
        y: (n,) their classes, 0…C−1.
        learned: (C,) the task in which each class first arrived, −1 for never (``first_seen``).

    The features of class 0 turn away, so that class 1, which arrived later, wins. Restoring the old
    features would repair it, and so would removing class 1; each is half of the cause:

    >>> weight = np.array([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    >>> z = np.array([[[1.0, 0.0]], [[0.5, 1.0]]])
    >>> parts = loss_parts(weight, np.zeros((2, 2)), z, np.array([0]), learned=np.array([0, 1]))
    >>> dict(zip(LOSS_PARTS, parts[1, 0].tolist()))
    {'weights': 0.0, 'interference': 0.5, 'drift': 0.5}
    """
    _check(weight, bias, z, y, learned)
    weight, bias, z = at_least_single(weight), at_least_single(bias), at_least_single(z)
    parts = np.zeros((*bias.shape, len(LOSS_PARTS)))
    for then in range(len(bias)):
        rows = np.flatnonzero(learned[y] == then)
        seen = (learned >= 0) & (learned <= then)
        for now in range(then + 1, len(bias)):
            states = (now, then)
            logits = [[z[f, rows] @ weight[r].T + bias[r] for r in states] for f in states]
            lost = (logits[1][1].argmax(1) == y[rows]) & (logits[0][0].argmax(1) != y[rows])
            values = shapley_values(_tried(logits, seen, y[rows])[lost])
            np.add.at(parts[now], y[rows][lost], values)
    return parts


def _tried(logits: list[list[Floats]], seen: Bools, y: Ints) -> Bools:
    """Try all combinations of repairs: right or not, (n, 2, 2, 2), axes as ``LOSS_PARTS``.

    Logits (n, C) are by features and rows: 0 for the current ones, 1 for the old ones. ``seen``
    (C,) are the classes seen then.
    """
    right = np.empty((len(y), 2, 2, 2), dtype=bool)
    for r, removed, f in np.ndindex(2, 2, 2):
        later = -np.inf if removed else logits[f][0]
        right[:, r, removed, f] = np.where(seen, logits[f][r], later).argmax(axis=1) == y
    return right


def _check(weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints) -> None:
    check_states(weight, z, y, learned)
    if bias.shape != weight.shape[:2]:
        raise ShapeError(f"bias must have the shape {weight.shape[:2]}, got {bias.shape}")
    if not all(np.isfinite(array).all() for array in (weight, bias, z)):
        raise DataError("weight, bias and z must be finite: has this network diverged?")
