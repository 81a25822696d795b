"""The arrays that the analysis takes, and the checks at its door."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lastlayer.core.checks import kind_of
from lastlayer.errors import ArgumentError, LabelError, ShapeError

P = ParamSpec("P")
R = TypeVar("R")

Floats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]


# What each kind of array may be made of, by NumPy's letters, and what that is called.
_DOORS = {
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
        raise ArgumentError(f"{name} must hold {numbers}, got {kind_of(value)}") from None
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"{name} must be an array without a mask, got a masked array")
    if array.dtype.kind not in letters and array.size:
        got = f"{array.dtype}" if hasattr(value, "dtype") else kind_of(value)
        raise ArgumentError(f"{name} must hold {numbers}, got {got}")
    if array.dtype.kind not in letters:
        return array.astype({"f": np.float64, "i": np.int64, "b": np.bool_}[letters[0]])
    return array


def whole_numbers(value: Any, name: str) -> Ints:
    """Return a row of whole numbers, whatever sequence they come in."""
    array: Ints = _as_array(value, name, *_DOORS[Ints])
    if array.ndim != 1:
        raise ShapeError(f"{name} must be one row of whole numbers, got the shape {array.shape}")
    return array


def check_rows(name: str, rows: Floats) -> None:
    """Refuse what is not (…, C, h) with features."""
    if rows.ndim < 2 or not rows.shape[-1]:
        raise ShapeError(f"{name} must have the shape (…, C, h), got {rows.shape}")


def check_same_shape(before: Floats, after: Floats) -> None:
    """Refuse two states of a head that do not have the same classes and features."""
    if before.shape != after.shape:
        raise ShapeError(
            f"before and after must have the same shape, got {before.shape} and {after.shape}: "
            "pass the rows of all classes in both"
        )


def check_square(name: str, matrix: Floats) -> None:
    """Refuse what is not (…, k, k)."""
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ShapeError(f"{name} must be a square matrix, got the shape {matrix.shape}")


def check_samples(z: Floats, y: Ints, weight: Floats) -> None:
    """Refuse samples that do not fit rows (…, C, h), or labels that are not among their classes."""
    if z.ndim != 2 or weight.ndim < 2 or z.shape[1] != weight.shape[-1]:
        raise ShapeError(
            f"z must have the shape (n, h) and weight (…, C, h), got {z.shape} and {weight.shape}"
        )
    if y.shape != z.shape[:1]:
        raise ShapeError(f"y must have one label for each of {len(z)} samples, got {y.shape}")
    n_classes = weight.shape[-2]
    if len(y) and not 0 <= y.min() <= y.max() < n_classes:
        raise LabelError(
            f"labels must be from 0 to {n_classes - 1}, as the head has {n_classes} rows, got "
            f"{y.min()} to {y.max()}"
        )


def at_least_single(array: Floats) -> Floats:
    """Widen half precision, in which features may be stored, to float32; keep other types."""
    return np.asarray(array, dtype=np.result_type(array.dtype, np.float32))


def check_states(weight: Floats, z: Floats, y: Ints, learned: Ints) -> None:
    """Refuse states of a network after T tasks that do not fit together."""
    fit = weight.ndim == z.ndim == 3 and len(weight) == len(z) > 0
    if not fit or learned.shape != weight.shape[1:2]:
        raise ShapeError(
            "weight must have the shape (T, C, h), z (T, n, h) and learned (C,), with T at least "
            f"1, got {weight.shape}, {z.shape} and {learned.shape}"
        )
    check_samples(z[0], y, weight)
    check_learned(learned, len(weight))


def check_learned(learned: Ints, n_tasks: int) -> None:
    """Refuse tasks, in which classes were learned, that are neither among n nor −1."""
    if len(learned) and not -1 <= learned.min() <= learned.max() < n_tasks:
        raise LabelError(
            f"learned must hold tasks from 0 to {n_tasks - 1}, or −1, got {learned.min()} to "
            f"{learned.max()}"
        )
