"""Projection drift: how far the features of a class have moved since it was learned."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.inputs import Floats, Ints, check_states, takes_arrays


class Drift(NamedTuple):
    """The drift of each class after each task, (T, C) each: 0 in the task that introduced it.

    NaN before that task, and for a class that never arrived or has no test samples.
    """

    norm: NDArray[np.float64]  # change of the mean norm, relative to its norm when learned
    angle: NDArray[np.float64]  # mean angle to its features when learned, in degrees
    along: NDArray[np.float64]  # mean step along its vector when learned, relative to that norm


@takes_arrays
def projection_drift(weight: Floats, z: Floats, y: Ints, learned: Ints) -> Drift:
    """Compare each class's features after each task with its features when it was learned.

    For a class c introduced by task s, after task t, with means over its test samples:

    - norm: mean ‖z_t‖ / mean ‖z_s‖ − 1;
    - angle: mean ∠(z_s, z_t); a zero vector has no angle and is left out;
    - along: mean (z_t − z_s)·Â / mean ‖z_s‖, where Â = A_c/‖A_c‖ is the class's output vector
      after task s. Below 0, the features have moved away from it.

    Args:
        weight: (T, C, h) the output vectors after each task; their length does not count.
        z: (T, n, h) features of the same test samples after each task.
        y: (n,) their classes, 0…C−1.
        learned: (C,) the task in which each class first arrived, −1 for never (``first_seen``).

    The only sample of class 0 turns by a right angle and grows to twice its length:

    >>> z = np.array([[[3.0, 0.0]], [[0.0, 6.0]]])
    >>> weight = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> drift = projection_drift(weight, z, y=np.array([0]), learned=np.array([0]))
    >>> [float(after[1, 0]) for after in drift]
    [1.0, 90.0, -1.0]
    """
    check_states(weight, z, y, learned)
    n_tasks, n_classes = weight.shape[:2]
    drift = Drift(*(np.full((n_tasks, n_classes), np.nan) for _ in Drift._fields))
    for c, then in enumerate(learned):
        rows = np.flatnonzero(y == c)
        if then < 0 or not len(rows):
            continue
        path = z[then:, rows].astype(np.float64)
        norms = np.linalg.norm(path, axis=-1).mean(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):  # all features, or a row, are zero
            drift.norm[then:, c] = norms / norms[0] - 1
            drift.angle[then:, c] = _mean_angles(path)
            vector = weight[then, c] / np.linalg.norm(weight[then, c])
            drift.along[then:, c] = ((path - path[0]) @ vector).mean(axis=1) / norms[0]
    return drift


def _mean_angles(path: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean angle of (T, n, h) to the first of them; equal vectors are exactly 0 apart.

    2 atan2(‖u − v‖, ‖u + v‖) of unit vectors u, v is accurate for small angles; arccos is not.
    """
    unit = path / np.linalg.norm(path, axis=-1, keepdims=True)
    apart, together = (np.linalg.norm(unit + sign * unit[0], axis=-1) for sign in (-1, 1))
    angles = np.degrees(2 * np.arctan2(apart, together))
    known = ~np.isnan(angles)
    mean: NDArray[np.float64] = np.where(known, angles, 0).sum(axis=1) / known.sum(axis=1)
    return mean
