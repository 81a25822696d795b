"""Angles in degrees: between output vectors, and between data and output vectors (Fig. 3)."""

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.arrays import (
    Floats,
    Ints,
    at_least_single,
    check_rows,
    check_samples,
    takes_arrays,
)

_CHUNK = 2**19  # numbers in one piece: 2 MB in float32; an array or two of them fit a core's cache


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
