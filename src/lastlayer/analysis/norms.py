"""The norm and the bias of each class, and what a task changes about them (Fig. 1)."""

import numpy as np

from lastlayer.analysis.arrays import Floats, check_rows, check_same_shape, takes_arrays


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
