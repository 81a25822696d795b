"""Arrays of any kind become checked feature sets."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.arguments import expect
from lastlayer.errors import DataError, OptionError
from lastlayer.features.feature_set import FeatureSet
from lastlayer.features.labels import as_array, encode
from lastlayer.features.split import stratified
from lastlayer.tensors import check_dense

Columns = Mapping[str, Any]  # label columns by name, the primary one first
Names = dict[str, tuple[str, ...]]


def as_features(z: Any) -> Tensor:
    """Give features as float16 or float32: those are kept, all other numbers become float32.

    >>> as_features([[1, 2], [3, 4]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    tensor = z if isinstance(z, Tensor) else _from_numpy(as_array(z, "features"))
    check_dense(tensor, "features")
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bool:
        raise DataError(f"expected features that are real numbers, got {tensor.dtype}")
    if tensor.dtype in (torch.float16, torch.float32):
        return tensor
    return tensor.to(torch.float32)


def _from_numpy(z: np.ndarray[Any, Any]) -> Tensor:
    if z.dtype.kind not in "fiubc":
        raise DataError(f"expected features that are numbers, got {z.dtype}")
    # PyTorch has no numbers of more than 8 bytes, nor of another machine's byte order.
    dtype = np.dtype(np.float64) if z.dtype.kind == "f" and z.itemsize > 8 else z.dtype
    if dtype.kind == "c":
        raise DataError(f"expected features that are real numbers, got {dtype}")
    native = np.ascontiguousarray(z, dtype=dtype.newbyteorder("="))
    with warnings.catch_warnings():
        # Torch warns that a read-only array could be written to: we never write to features.
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        return torch.from_numpy(native)


def part(z: Any, columns: Columns, test: float, seed: int) -> tuple[FeatureSet, FeatureSet, Names]:
    """Draw a test set from all samples."""
    codes: dict[str, Tensor] = {}
    names: Names = {}
    for name, values in columns.items():
        (codes[name],), names[name] = encode(name, values)
    whole = FeatureSet(as_features(z), codes)
    train, test_set = (
        FeatureSet(whole.z[rows], {k: v[rows] for k, v in codes.items()}, check=False)
        for rows in stratified(whole.y, test, seed)
    )
    return train, test_set, names


def join(
    z: Any, columns: Columns, z_test: Any, test_columns: Columns
) -> tuple[FeatureSet, FeatureSet, Names]:
    """Take train and test as they are; a class has the same number in both."""
    expect(test_columns, Mapping, "the columns of test", "a table of names and values")
    unknown = set(test_columns) - set(columns)
    if unknown:
        raise OptionError(
            f"expected label columns that train has too, got {sorted(map(str, unknown))}"
        )
    codes: dict[str, Tensor] = {}
    test_codes: dict[str, Tensor] = {}
    names: Names = {}
    for name, values in columns.items():
        if name in test_columns:
            (codes[name], test_codes[name]), names[name] = encode(name, values, test_columns[name])
        else:
            (codes[name],), names[name] = encode(name, values)
    return (
        FeatureSet(as_features(z), codes),
        FeatureSet(as_features(z_test), test_codes, label=next(iter(columns))),
        names,
    )
