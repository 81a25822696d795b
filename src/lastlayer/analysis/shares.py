"""From counts of right answers to accuracies."""

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.arrays import Ints, takes_arrays
from lastlayer.errors import ShapeError


@takes_arrays
def share(right: Ints, of: Ints) -> NDArray[np.float64]:
    """Turn counts of right answers into accuracies; −1, and a share of nothing, become NaN.

    >>> share(np.array([[3, 0], [-1, -1]]), np.array([4, 0])).tolist()
    [[0.75, nan], [nan, nan]]
    """
    _check(right, of)
    known = (right >= 0) & (of > 0)
    return np.where(known, right / np.maximum(of, 1), np.nan)


@takes_arrays
def share_of_all(right: Ints, of: Ints) -> NDArray[np.float64]:
    """Return the accuracy on all classes together: (…) from right answers (…, N) of (N,) samples.

    >>> share_of_all(np.array([[3, 0], [-1, -1]]), np.array([4, 4])).tolist()
    [0.375, nan]
    """
    _check(right, of)
    if right.ndim < 1 or of.ndim != 1:
        raise ShapeError(f"expected counts (…, N) of (N,) samples, got {right.shape}, {of.shape}")
    whole = np.where((right < 0).any(axis=-1), -1, right.sum(axis=-1))
    return share(whole, of.sum())


def _check(right: Ints, of: Ints) -> None:
    try:
        np.broadcast_shapes(right.shape, of.shape)
    except ValueError:
        raise ShapeError(
            f"expected counts of the same samples, got the shapes {right.shape} and {of.shape}"
        ) from None
