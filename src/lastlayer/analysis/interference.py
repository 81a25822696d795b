"""Interference risk: which wrong output vectors lie close to a class's data (Fig. 3)."""

import numpy as np

from lastlayer.analysis.arrays import Floats, check_square, takes_arrays
from lastlayer.arguments import whole


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
