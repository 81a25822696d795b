"""The arrays that the analysis takes, and the checks at its door."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lastlayer.errors import LabelError, ShapeError

Floats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]


def check_same_shape(before: Floats, after: Floats) -> None:
    """Refuse two states of a head that do not have the same classes and features."""
    if before.shape != after.shape:
        raise ShapeError(
            f"expected the same shape before and after a task, got {before.shape} and "
            f"{after.shape}: give both with the rows of all classes"
        )


def check_square(name: str, matrix: Floats) -> None:
    """Refuse what is not (…, k, k)."""
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ShapeError(f"expected {name} as a square matrix, got the shape {matrix.shape}")


def check_samples(z: Floats, y: Ints, weight: Floats) -> None:
    """Refuse samples that do not fit rows (…, C, h), or labels that are none of their classes."""
    if z.ndim != 2 or weight.ndim < 2 or z.shape[1] != weight.shape[-1]:
        raise ShapeError(
            f"expected features (n, h) and rows (…, C, h), got {z.shape} and {weight.shape}"
        )
    if y.shape != z.shape[:1]:
        raise ShapeError(f"expected one label for each of {len(z)} samples, got {y.shape}")
    n_classes = weight.shape[-2]
    if not np.issubdtype(y.dtype, np.integer):
        raise LabelError(f"expected whole numbers as labels, got {y.dtype}")
    if len(y) and not 0 <= y.min() <= y.max() < n_classes:
        raise LabelError(
            f"expected labels from 0 to {n_classes - 1}, one for each row of the head, "
            f"got {y.min()} to {y.max()}"
        )


def at_least_single(array: Floats) -> Floats:
    """Widen half precision, which is how features are stored; leave the others as they are."""
    return np.asarray(array, dtype=np.result_type(array.dtype, np.float32))


def check_states(weight: Floats, z: Floats, y: Ints, learned: Ints) -> None:
    """Refuse states of a network after T tasks that do not fit together.

    Args:
        weight: expected (T, C, h).
        z: expected (T, n, h).
        y: expected (n,), classes.
        learned: expected (C,), tasks or −1.
    """
    fit = weight.ndim == z.ndim == 3 and len(weight) == len(z) > 0
    if not fit or learned.shape != weight.shape[1:2]:
        raise ShapeError(
            "expected rows (T, C, h), features (T, n, h) and learned (C,) with T of at least 1, "
            f"got {weight.shape}, {z.shape} and {learned.shape}"
        )
    check_samples(z[0], y, weight)
    if len(learned) and not -1 <= learned.min() <= learned.max() < len(weight):
        raise LabelError(
            f"expected tasks from 0 to {len(weight) - 1}, or −1, for when classes were learned, "
            f"got {learned.min()} to {learned.max()}"
        )
