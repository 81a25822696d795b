"""Arrays of any kind become checked feature sets."""

import warnings
from collections.abc import Mapping
from threading import Lock
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
_ONE_AT_A_TIME = Lock()  # what is warned of is the process's: two threads would not put it back


def as_features(z: Any) -> Tensor:
    """Return features as float16 or float32: those are kept, all other numbers become float32.

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
    with _ONE_AT_A_TIME, warnings.catch_warnings():
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


def join(splits: Mapping[str, tuple[Any, Columns]]) -> tuple[dict[str, FeatureSet], Names]:
    """Join existing splits, train first; a class has the same number in all of them."""
    columns = splits["train"][1]
    for split, (_, others) in splits.items():
        expect(others, Mapping, f"the columns of {split}", "a table of names and values")
        unknown = set(others) - set(columns)
        if unknown:
            raise OptionError(
                f"expected label columns that train also has, got {sorted(map(str, unknown))}"
            )
    codes: dict[str, dict[str, Tensor]] = {split: {} for split in splits}
    names: Names = {}
    for name in columns:
        having = [split for split, (_, others) in splits.items() if name in others]
        numbered, names[name] = encode(name, *(splits[split][1][name] for split in having))
        for split, numbers in zip(having, numbered, strict=True):
            codes[split][name] = numbers
    label = next(iter(columns))
    made = {s: FeatureSet(as_features(z), codes[s], label=label) for s, (z, _) in splits.items()}
    return made, names
