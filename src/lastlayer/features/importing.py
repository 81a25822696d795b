"""Features from a table of embeddings that another program wrote."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lastlayer.arguments import expect, short
from lastlayer.errors import DataError, LabelError, OptionError
from lastlayer.features.arrays import Names, join, part
from lastlayer.features.data import Features, Origin
from lastlayer.features.feature_set import FeatureSet
from lastlayer.features.tables import Array, read_table


def import_features(
    path: str | os.PathLike[str],
    embedding: str,
    label: str,
    domains: Sequence[str] = (),
    *,
    split: str | None = None,
    test: float | None = None,
    seed: int = 0,
) -> Features:
    """Read embeddings and their labels from a file.

    Args:
        path: A .npz or a .parquet file.
        embedding: The column of embeddings: (n, h) numbers, or a list of h numbers per row.
        label: The column to learn, of any type.
        domains: Further columns to keep as labels, of any type, such as a session.
        split: The column that says ``train`` or ``test``, in capitals or not.
        test: Without one, the part of each class to draw as test; 0.2 if not given.
        seed: Decides that draw.
    """
    if split is not None and test is not None:
        raise OptionError(f"expected a split column or a part to draw, got '{split}' and {test}")
    expect(domains, (list, tuple), "domains", "a list of names")
    for name in (embedding, label, *domains, *([] if split is None else [split])):
        expect(name, str, "the name of a column", "text")
    names = list(dict.fromkeys([label, *domains]))
    table = read_table(path, [embedding, *names, *([split] if split else [])])
    z, columns = table[embedding], {name: _as_labels(name, table[name]) for name in names}
    if split:
        splits = _by_column(z, columns, split, table[split])
        how = f"--split {split}"
    else:
        test = 0.2 if test is None else test
        splits = part(z, columns, test, seed)
        how = f"--test {test} --seed {seed}"
    kept = "".join(f" --domain {name}" for name in names[1:])
    made = f"lastlayer import FILE --embedding {embedding} --label {label}{kept} {how} --out FILE"
    return Features(*splits, Origin(dataset=Path(path).stem, made=made))


def _as_labels(name: str, values: Array) -> Array:
    """Read numbers with a point as classes too: 3.0 is class 3, 0.5 is class "0.5"."""
    if values.dtype.kind != "f":
        return values
    if not np.isfinite(values).all():
        raise LabelError(f"expected a label for every sample, but '{name}' has NaN or infinity")
    whole = (values == values.round()).all() and np.abs(values).max() < 2**53
    return values.astype(np.int64 if whole else np.str_)


def _by_column(
    z: Array, columns: dict[str, Array], split: str, values: Array
) -> tuple[FeatureSet, FeatureSet, Names]:
    words = [str(value).lower() for value in values.tolist()]
    found = sorted(set(words))
    if found != ["test", "train"]:
        few = [short(word) for word in found[:5]]
        raise DataError(f"expected 'train' and 'test' in column '{split}', got {few}")
    train = np.array([word == "train" for word in words])
    test = ~train
    return join(
        z[train],
        {name: column[train] for name, column in columns.items()},
        z[test],
        {name: column[test] for name, column in columns.items()},
    )
