"""Shapley shares: how much each of several repairs contributes where they work in combination."""

from math import comb

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.arrays import Bools, takes_arrays
from lastlayer.errors import DataError, ShapeError


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
        raise ShapeError(f"expected a table (n, 2, …, 2), one axis a repair, got {right.shape}")
    table = right.reshape(len(right), 2**k)
    if table[:, 0].any() or not table[:, -1].all():
        raise DataError("expected samples that are wrong without any repair and right with all")
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
