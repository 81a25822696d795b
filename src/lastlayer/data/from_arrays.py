"""Arrays of any kind become checked feature sets."""

import warnings
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import expect
from lastlayer.core.tensors import check_dense
from lastlayer.data.feature_set import FeatureSet
from lastlayer.data.hold_out import TEST, stratified
from lastlayer.data.label_values import as_array, encode
from lastlayer.errors import DataError, OptionError

Columns = Mapping[str, Any]  # label columns by name, the primary one first
Names = dict[str, tuple[str, ...]]
Say = Callable[[str], None]
T = TypeVar("T")
# What is warned of belongs to the process: two threads at once would not put it back.
_ONE_AT_A_TIME = Lock()


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
        raise DataError(f"features must be real numbers, got {tensor.dtype}")
    if tensor.dtype in (torch.float16, torch.float32):
        return tensor
    return tensor.to(torch.float32)


def _from_numpy(z: np.ndarray[Any, Any]) -> Tensor:
    if z.dtype.kind not in "fiubc":
        raise DataError(f"features must be numbers, got {z.dtype}")
    # PyTorch has no numbers of more than 8 bytes, nor of another machine's byte order.
    dtype = np.dtype(np.float64) if z.dtype.kind == "f" and z.itemsize > 8 else z.dtype
    if dtype.kind == "c":
        raise DataError(f"features must be real numbers, got {dtype}")
    native = np.ascontiguousarray(z, dtype=dtype.newbyteorder("="))
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        # Torch warns that a read-only array could be written to: we never write to features.
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        return torch.from_numpy(native)


def assemble(
    splits: Mapping[str, tuple[Any, Columns]],
    test: float | None = None,
    seed: int = 0,
    say: Say = lambda sentence: None,
) -> tuple[dict[str, FeatureSet], Names]:
    """Make feature sets of what was read; a test set is drawn where there is none."""
    splits, drawn = find_test(splits, test, seed, say)
    made, names = join(splits)
    if drawn is None:
        return made, names
    (whole,) = made.values()
    train, held_out = map(whole.take, stratified(whole.y, drawn, seed))
    return {"train": train, "test": held_out}, names


def join(splits: Mapping[str, tuple[Any, Columns]]) -> tuple[dict[str, FeatureSet], Names]:
    """Join existing splits, train first; a class has the same number in all of them."""
    codes, names = encode_columns({split: columns for split, (_, columns) in splits.items()})
    label = next(iter(names))
    made = {s: FeatureSet(as_features(z), codes[s], label=label) for s, (z, _) in splits.items()}
    return made, names


def find_test(
    splits: Mapping[str, T], test: float | None, seed: int, say: Say
) -> tuple[dict[str, T], float | None]:
    """Return the splits with a test set among them; or the one that there is, and what to draw.

    That is the part ``test`` of each class, 0.2 if not given. What is done is told to ``say``.
    """
    found = dict(splits)
    if "validation" in found and "test" not in found:
        found["test"] = found.pop("validation")
        say("took the validation set as test set, since there was no other")
    if "test" not in found:
        share = TEST if test is None else test
        drawn = f"drew {100 * share:.0f} % of each class as test (seed {seed})"
        say(f"{drawn}, since there was no split")
        return found, share
    if test is not None:
        raise OptionError(f"there is a test set already: leave out the part to draw, {test}")
    return found, None


def encode_columns(splits: Mapping[str, Columns]) -> tuple[dict[str, dict[str, Tensor]], Names]:
    """Return the labels' numbers by split and column, and the names of the classes by column.

    A class has the same number in all splits.
    """
    first = next(iter(splits.values()))
    for split, columns in splits.items():
        expect(columns, Mapping, f"the columns of {split}", "a table of names and values")
        if unknown := set(columns) - set(first):
            raise OptionError(
                f"train must have every label column of {split}, and lacks "
                f"{', '.join(sorted(map(str, unknown)))}"
            )
    codes: dict[str, dict[str, Tensor]] = {split: {} for split in splits}
    names: Names = {}
    for name in first:
        having = [split for split, columns in splits.items() if name in columns]
        numbered, names[name] = encode(name, *(splits[split][name] for split in having))
        for split, numbers in zip(having, numbered, strict=True):
            codes[split][name] = numbers
    return codes, names
