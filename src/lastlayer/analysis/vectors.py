"""Output vectors: norms, what a task changes, angles and interference (Figs. 1 to 3)."""

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.inputs import (
    Floats,
    Ints,
    at_least_single,
    check_rows,
    check_same_shape,
    check_samples,
    check_square,
    takes_arrays,
)
from lastlayer.core.checks import whole

_CHUNK = 2**19  # numbers in one piece: 2 MB in float32; an array or two of them fit a core's cache


@takes_arrays
def class_norms(weight: Floats) -> Floats:
    """Return the norm ‖A_c‖ of each row of (…, C, h): (…, C) (Fig. 1, left).

    >>> class_norms(np.array([[3.0, 4.0], [0.0, 2.0]])).tolist()
    [5.0, 2.0]
    """
    check_rows("weight", weight)
    norms: Floats = np.linalg.norm(weight, axis=-1)
    return norms


@takes_arrays
def norm_change(before: Floats, after: Floats) -> Floats:
    """Return how much longer each row grew over a task: ‖A_c after‖ − ‖A_c before‖, (…, C).

    A row that only turned has not changed its norm; ``weight_change`` shows that it moved.

    >>> norm_change(np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([[4.0, 3.0], [0.0, 5.0]])).tolist()
    [0.0, 3.0]
    """
    check_same_shape(before, after)
    return class_norms(after) - class_norms(before)


@takes_arrays
def bias_change(before: Floats, after: Floats) -> Floats:
    """Return b_c after − b_c before over a task: (…, C) (Fig. 1, right).

    NaN where a class could not be predicted before or after (a bias of −∞).

    >>> bias_change(np.array([0.5, 1.0, -np.inf]), np.array([0.25, 3.0, 1.0])).tolist()
    [-0.25, 2.0, nan]
    """
    check_same_shape(before, after)
    both = np.isfinite(before) & np.isfinite(after)
    return np.where(both, np.where(both, after, 0) - np.where(both, before, 0), np.nan)


@takes_arrays
def weight_change(before: Floats, after: Floats) -> Floats:
    """Return A after − A before a task: (…, C, h).

    Rows of classes absent from the task show what the paper calls modification of weights; its
    figure draws the first 50 dimensions, ``[:, :50]``. ``class_norms`` of the result is how far
    each row moved.

    >>> weight_change(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [2.5, 6.0]]))
    array([[ 0. ,  0. ],
           [-0.5,  2. ]])
    """
    check_same_shape(before, after)
    return after - before


@takes_arrays
def angles_between(weight: Floats) -> NDArray[np.float64]:
    """Return the angle of each pair of rows of (…, C, h): (…, C, C) (Fig. 3, left).

    ∠(A_i, A_j) = arccos(A_i·A_j / (‖A_i‖ ‖A_j‖)), 0 on the diagonal. A zero row has no angle
    with anything, itself included: NaN.

    >>> angles_between(np.array([[1.0, 0.0], [0.0, 3.0], [-2.0, 0.0]])).tolist()
    [[0.0, 90.0, 180.0], [90.0, 0.0, 90.0], [180.0, 90.0, 0.0]]
    """
    check_rows("weight", weight)
    rows = _unit(np.asarray(weight, dtype=np.float64))
    angles = _degrees(rows @ rows.swapaxes(-1, -2)).astype(np.float64, copy=False)
    own = np.arange(rows.shape[-2])
    # Rounding leaves up to 1e-6 degrees between a row and itself; NaN stays.
    angles[..., own, own] *= 0
    return angles


@takes_arrays
def data_angles(z: Floats, y: Ints, weight: Floats) -> NDArray[np.float64]:
    """Return the mean angle of each class's data to each output vector (Fig. 3, middle).

    Element (c, i) is the mean of ∠(z, A_i) over the samples of class c. Angles are taken in the
    type of ``z`` and ``weight``, float32 at least: in float32 one near 0 or 180 is good to about
    0.1 degrees, others to 1e-3. Samples are taken in pieces: beyond the result and indices that
    sort the labels, about 10 MB is held (or a few times one sample's features and angles).

    Args:
        z: (n, h) features. A zero vector has no angle and is left out of the mean.
        y: (n,) their classes, 0…C−1.
        weight: (…, C, h) the output vectors; states of many tasks at once cost less than one
            by one.

    Returns:
        (…, C, C), rows classes of the data, columns output vectors. NaN in the row of a class
        without samples and in the column of a zero vector.

    >>> z, y = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 5.0]]), np.array([0, 0, 1])
    >>> data_angles(z, y, np.array([[1.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
    array([[45., 45., nan],
           [90.,  0., nan],
           [nan, nan, nan]])
    """
    check_samples(z, y, weight)
    y, n_classes = y.astype(np.int64), weight.shape[-2]
    rows = _unit(at_least_single(weight)).reshape(-1, weight.shape[-1])
    sums, counts = np.zeros((n_classes, len(rows))), np.zeros((n_classes, 1))
    by_class = np.argsort(y, kind="stable")
    n = max(1, _CHUNK // max(rows.shape))
    for start in range(0, len(y), n):
        _add(by_class[start : start + n], z, y, rows, sums, counts)
    with np.errstate(invalid="ignore"):  # 0/0: a class without samples
        means = sums / counts
    return np.moveaxis(means.reshape(n_classes, *weight.shape[:-1]), 0, -2)


def _add(picked: Ints, z: Floats, y: Ints, rows: Floats, sums: Floats, counts: Floats) -> None:
    """Add the angles of samples sorted by class to the sums of their classes."""
    part = at_least_single(z[picked])
    there = part.any(axis=1)
    part, labels = part[there], y[picked][there]
    if len(part):
        angles = _degrees(_unit(part) @ rows.T)
        starts = np.flatnonzero(np.diff(labels, prepend=-1))
        sums[labels[starts]] += np.add.reduceat(angles, starts, axis=0)
        counts[labels[starts], 0] += np.diff(starts, append=len(labels))


def _unit(rows: Floats) -> Floats:
    """Scale rows to length 1, by their largest element first so that no square overflows."""
    with np.errstate(invalid="ignore"):  # 0/0: a zero vector has no direction
        rows = rows / np.abs(rows).max(axis=-1, keepdims=True)
        unit: Floats = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit


def _degrees(cosine: Floats) -> Floats:
    """Turn cosines into degrees in place; rounding may have left them a little beyond ±1."""
    np.clip(cosine, -1, 1, out=cosine)
    np.arccos(cosine, out=cosine)
    return np.degrees(cosine, out=cosine)


@takes_arrays
def interference_risk(data_angles: Floats) -> Floats:
    """Return mean∠(z_c, A_c) / mean∠(z_c, A_i) from the mean angles (…, C, C) (Fig. 3, right).

    1 on the diagonal; above 1 where the wrong vector i is closer to the data of class c than
    that class's own vector. The paper's caption states the inverse ratio and yet calls high values
    risky; this is the ratio for which they are. Two equal angles give 1, even where both are 0.
    NaN where an angle is NaN.

    >>> interference_risk(np.array([[45.0, 90.0], [60.0, 80.0]])).round(3).tolist()
    [[1.0, 0.5], [1.333, 1.0]]
    """
    check_square("mean angles", data_angles)
    own = np.diagonal(data_angles, axis1=-2, axis2=-1)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(data_angles == own, 1.0, own / data_angles)


@takes_arrays
def largest_risk(risk: Floats) -> Floats:
    """Return each class's largest risk from another class's vector: (…, C) from (…, C, C).

    NaN for a class without a risk: one that has no data, or is the only class.

    >>> largest_risk(np.array([[1.0, 0.5, 0.7], [1.3, 1.0, np.nan], [np.nan] * 3])).tolist()
    [0.7, 1.3, nan]
    """
    check_square("risks", risk)
    others: Floats = np.fmax.reduce(_without_diagonal(risk), axis=-1)
    return others


@takes_arrays
def riskiest_pairs(risk: Floats, k: int) -> list[tuple[int, int, float]]:
    """Return the k riskiest pairs of one (C, C) matrix, the riskiest first.

    Each is (class of the data, class of the wrong vector, risk); ties keep their order. There are
    fewer than k where fewer pairs have a risk.

    >>> riskiest_pairs(np.array([[1.0, 0.5, 0.7], [1.3, 1.0, np.nan], [np.nan] * 3]), k=2)
    [(1, 0, 1.3), (0, 2, 0.7)]
    """
    check_square("risks", risk)
    k = whole(k, "k")
    flat = _without_diagonal(risk).ravel()
    first = np.argsort(-flat, kind="stable")[: max(k, 0)]  # NaN sorts last
    return [(*divmod(int(pair), len(risk)), float(flat[pair])) for pair in first if flat[pair] >= 0]


def _without_diagonal(risk: Floats) -> Floats:
    return np.where(np.eye(risk.shape[-1], dtype=bool), np.nan, risk)
