"""Labels of any type become classes 0…N−1, and their names are kept."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.errors import LabelError, ShapeError


def encode(name: str, *parts: Any) -> tuple[list[Tensor], tuple[str, ...]]:
    """Number the values of a label column, sorted, over all its parts (train, test).

    >>> encode("animal", ["dog", "cat"], ["dog", "emu"])
    ([tensor([1, 0]), tensor([1, 2])], ('cat', 'dog', 'emu'))
    """
    arrays = [_as_array(name, part) for part in parts]
    values, codes = np.unique(np.concatenate(arrays), return_inverse=True)
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    tensors = [torch.from_numpy(part.astype(np.int64)) for part in np.split(codes, ends)]
    return tensors, tuple(str(value) for value in values)


def _as_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Give a column as whole numbers or text, which is what can be sorted and named."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.ndim != 1:
        raise ShapeError(f"expected labels '{name}' of shape (n,), got {array.shape}")
    if array.dtype.kind == "O":
        return _plain(name, array.tolist())
    if array.dtype.kind not in "iubUSMm":
        raise LabelError(
            f"expected whole numbers or text as labels '{name}', got {array.dtype}: "
            "turn them into integers or strings first"
        )
    return array.astype(np.str_) if array.dtype.kind in "bSMm" else array


def _plain(name: str, values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Take objects as whole numbers if all are, else as text."""
    missing = sum(value is None or value != value for value in values)  # noqa: PLR0124  (NaN, NaT)
    if missing:
        raise LabelError(f"expected a label for every sample, but '{name}' lacks {missing}")
    if all(type(value) is int for value in values):
        return np.array(values, dtype=np.int64)
    return np.array([str(value) for value in values], dtype=np.str_)
