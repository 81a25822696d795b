"""Labels of any type become classes 0…N−1, whole columns or a piece at a time; names are kept."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import kind_of, short
from lastlayer.core.names import class_name
from lastlayer.core.tensors import check_dense
from lastlayer.errors import ArgumentError, DataError, LabelError, ShapeError

# Characters in the name of a class: what is longer is a text, not a class.
LONGEST = 1000
Array = np.ndarray[Any, Any]


def encode(name: str, *parts: Any) -> tuple[list[Tensor], tuple[str, ...]]:
    """Number the values of a label column, over all its parts, and name the classes.

    >>> encode("animal", ["dog", "cat"], ["dog", "emu"])
    ([tensor([1, 0]), tensor([1, 2])], ('cat', 'dog', 'emu'))
    """
    codes, labels = number(name, *parts)
    return codes, tuple(map(class_name, labels))


def number(name: str, *parts: Any) -> tuple[list[Tensor], tuple[str, ...]]:
    r"""Number the values of a label column, sorted, over all its parts (train, test).

    >>> number("animal", ["dog\n", "cat"], ["dog\n", "emu"])
    ([tensor([1, 0]), tensor([1, 2])], ('cat', 'dog\n', 'emu'))
    """
    columns = [_as_column(name, part) for part in parts]
    whole = [column for column in columns if isinstance(column, np.ndarray)]
    # int64 beside uint64 would become float64, in which large numbers are no longer apart.
    if len(whole) < len(columns) or np.result_type(*whole).kind == "f":
        return _number_text([[str(value) for value in column] for column in columns])
    values, codes = np.unique(np.concatenate(whole), return_inverse=True)
    ends = np.cumsum([len(column) for column in whole])[:-1]
    tensors = [torch.from_numpy(part.astype(np.int64)) for part in np.split(codes, ends)]
    return tensors, tuple(str(value) for value in values)


def as_array(values: Any, what: str) -> Array:
    """Return an array from numpy, lists, or anything that converts itself to one."""
    try:
        array = np.asarray(values)
    except Exception as error:  # an object may raise anything
        raise ArgumentError(f"{what} must be an array, got {kind_of(values)}: {error}") from error
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise DataError(f"{what} must have all values, but some are masked")
    return array


def _number_text(columns: Sequence[Sequence[str]]) -> tuple[list[Tensor], tuple[str, ...]]:
    """Number text as Python strings: numpy's would make every one as wide as the longest."""
    names = sorted(set(chain.from_iterable(columns)))
    number = {name: place for place, name in enumerate(names)}
    codes = (torch.tensor([number[value] for value in column]).long() for column in columns)
    return list(codes), tuple(names)


def _as_column(name: str, values: Any) -> Array | list[str]:
    """Return a column as whole numbers or text, which can be sorted and named."""
    if isinstance(values, Tensor):
        check_dense(values, f"labels '{name}'")
        if values.is_floating_point():
            raise _no_labels(name, values.dtype)
        values = values.detach().cpu().numpy()
    if isinstance(values, list | tuple) and any(isinstance(v, str) for v in values):
        values = np.array(values, dtype=object)  # NumPy's own text drops a NUL at its end
    array = as_array(values, f"labels '{name}'")
    if array.ndim != 1:
        raise ShapeError(f"labels '{name}' must have shape (n,), got {array.shape}")
    if array.dtype.kind == "O":
        refuse_mixed(name, array.tolist())
    elif isinstance(values, list | tuple):  # of which numpy has made text, if there was any
        refuse_mixed(name, values)
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind not in "bUSMmO":
        raise _no_labels(name, array.dtype)
    if array.dtype.kind in "Mm" and (missing := int(np.isnat(array).sum())):
        raise _lacking(name, missing)
    return _plain(name, array)


def refuse_mixed(name: str, values: Sequence[Any]) -> None:
    """Refuse a column of text, bytes or something else: 1, "1" and b"1" would be one class."""
    first: dict[str, int] = {}  # the row in which each comes first
    for row, value in enumerate(values):
        if isinstance(value, str | bytes):
            first.setdefault("text" if isinstance(value, str) else "bytes", row)
        elif value is not None and value == value:  # noqa: PLR0124  (NaN is missing, not another)
            first.setdefault("", row)
    if len(first) > 1:
        one, other, *_ = sorted(first, reverse=True)
        raise LabelError(
            f"labels '{name}' must be of one type, got {one} in row {first[one]} and "
            f"{other or kind_of(values[first['']])} in row {first[other]}: turn all of them into "
            "text"
        )


def _plain(name: str, array: Array) -> Array | list[str]:
    """Return objects as whole numbers if all of them are, else as text."""
    # Dates as numpy writes them; tolist would make numbers of those finer than a microsecond.
    values = (array.astype(np.str_) if array.dtype.kind in "Mm" else array).tolist()
    try:
        missing = sum(bool(value is None or value != value) for value in values)  # noqa: PLR0124  (NaN, NaT)
        texts = [v.decode() if isinstance(v, bytes) else str(v) for v in values]
    except Exception as error:  # an object may raise anything
        raise LabelError(
            f"labels '{name}' must be whole numbers or text, got an object that is neither: {error}"
        ) from error
    if missing:
        raise _lacking(name, missing)
    if all(type(value) is int and abs(value) < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    check_lengths(texts, f" '{name}'")
    return texts


def check_lengths(texts: Sequence[str], of: str = "") -> None:
    """Refuse labels that are too long to be names."""
    longest = max(texts, key=len, default="")
    if len(longest) > LONGEST:
        raise LabelError(
            f"labels{of} must have at most {LONGEST} characters, got one of {len(longest)}: "
            f"{short(longest)}"
        )


def as_labels(*parts: Array) -> list[Array]:
    """Return the parts of a column with whole numbers or text for numbers with a point.

    3.0 is class 3; where a value of any part has a fraction, all are text: 0.5 is class "0.5".
    """
    kind = np.str_ if any(map(has_fraction, parts)) else np.int64
    return [values.astype(kind) if values.dtype.kind == "f" else values for values in parts]


def piece_of_labels(name: str, values: Array) -> Array:
    """Return the labels of some rows as numbers or as text; refuse what is neither, or missing."""
    if values.dtype.kind == "f" and values.ndim == 1:
        return values
    column = _as_column(name, values)
    if isinstance(column, np.ndarray):
        return column
    check_none_empty(name, column)
    return np.array(column, dtype=object)


def has_fraction(values: Array) -> bool:
    """Return whether labels are numbers that cannot all be read as whole ones."""
    return values.dtype.kind == "f" and not bool(
        (values == values.round()).all() and (np.abs(values) < 2**53).all()
    )


def code(values: Array) -> tuple[Array, list[Any]]:
    """Number the distinct values of a piece, in any order; return the numbers and the values."""
    if values.dtype.kind in "iuf":
        found, codes = np.unique(values, return_inverse=True)
        return codes, list(found)
    seen: dict[str, int] = {}
    listed = [seen.setdefault(value, len(seen)) for value in values.tolist()]
    return np.array(listed, dtype=np.int64), list(seen)


def label_text(value: Any, fraction: bool) -> str:
    """Return a label as text: 3.0 is class 3, unless others of its column have a fraction."""
    return str(int(value)) if isinstance(value, np.floating) and not fraction else str(value)


def check_none_empty(name: str, labels: Sequence[str]) -> None:
    """Refuse an empty text among labels that a head is to learn: it stands for a missing one."""
    if "" in labels:
        raise LabelError(f"every sample needs a label, but one of '{name}' is empty")


def check_finite(name: str, values: Array, start: int) -> None:
    """Refuse numbers that are no labels; ``start`` is the first row, for the message."""
    if values.dtype.kind != "f":
        return
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if len(bad):
        raise LabelError(
            f"every sample needs a label, but '{name}' has NaN or infinity in row {start + bad[0]}"
        )


def _no_labels(name: str, dtype: object) -> LabelError:
    return LabelError(
        f"labels '{name}' must be whole numbers or text, got {dtype}: "
        "turn them into integers or strings first"
    )


def _lacking(name: str, missing: int) -> LabelError:
    return LabelError(f"every sample needs a label, but '{name}' lacks {missing}")
