"""The arrays that the analysis takes, and the checks at its door."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lastlayer.arguments import kind_of
from lastlayer.errors import ArgumentError, LabelError, ShapeError

P = ParamSpec("P")
R = TypeVar("R")

Floats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]


_DOORS = {  # what each kind of array may be made of, by numpy's letters, and how that is called
    Floats: ("fiub", "real numbers"),
    Ints: ("iu", "whole numbers"),
    Bools: ("b", "True and False"),
}


def takes_arrays(function: Callable[P, R]) -> Callable[P, R]:
    """Convert a function's arguments to the arrays that its annotations name.

    Lists and tensors are accepted. An argument that does not hold such numbers is refused by name;
    so is a masked array, since its mask would be silently lost.
    """
    signature = inspect.signature(function)
    kinds = {
        name: kind
        for name, parameter in signature.parameters.items()
        for kind in _DOORS
        if parameter.annotation in (kind, kind | None)
    }

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs)
        for name, kind in kinds.items():
            value = given.arguments.get(name)
            if value is not None or signature.parameters[name].default is inspect.Parameter.empty:
                given.arguments[name] = _as_array(value, name, *_DOORS[kind])
        return function(*given.args, **given.kwargs)

    return checked


def _as_array(value: Any, name: str, letters: str, numbers: str) -> NDArray[Any]:
    try:
        array = value if type(value) is np.ndarray else np.asarray(value)
    except Exception:  # an object may raise anything
        raise ArgumentError(f"expected {numbers} as {name}, got {kind_of(value)}") from None
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"expected {name} as an array without a mask, got a masked array")
    if array.dtype.kind not in letters and array.size:
        got = f"{array.dtype}" if hasattr(value, "dtype") else kind_of(value)
        raise ArgumentError(f"expected {numbers} as {name}, got {got}")
    if array.dtype.kind not in letters:
        return array.astype({"f": np.float64, "i": np.int64, "b": np.bool_}[letters[0]])
    return array


def whole_numbers(value: Any, name: str) -> Ints:
    """Return a row of whole numbers, whatever sequence they come in."""
    array: Ints = _as_array(value, name, *_DOORS[Ints])
    if array.ndim != 1:
        raise ShapeError(f"expected {name} as a row of whole numbers, got the shape {array.shape}")
    return array


def check_rows(name: str, rows: Floats) -> None:
    """Refuse what is not (…, C, h) with features."""
    if rows.ndim < 2 or not rows.shape[-1]:
        raise ShapeError(f"expected {name} as rows (…, C, h), got the shape {rows.shape}")


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
    """Refuse samples that do not fit rows (…, C, h), or labels that are not among their classes."""
    if z.ndim != 2 or weight.ndim < 2 or z.shape[1] != weight.shape[-1]:
        raise ShapeError(
            f"expected features (n, h) and rows (…, C, h), got {z.shape} and {weight.shape}"
        )
    if y.shape != z.shape[:1]:
        raise ShapeError(f"expected one label for each of {len(z)} samples, got {y.shape}")
    n_classes = weight.shape[-2]
    if len(y) and not 0 <= y.min() <= y.max() < n_classes:
        raise LabelError(
            f"expected labels from 0 to {n_classes - 1}, one for each row of the head, "
            f"got {y.min()} to {y.max()}"
        )


def at_least_single(array: Floats) -> Floats:
    """Widen half precision, in which features may be stored, to float32; keep other types."""
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
