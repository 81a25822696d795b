"""Rows to learn, predict or forget: from features, or straight from another program's table."""

import os
from dataclasses import dataclass

from safetensors import safe_open
from torch import Tensor

from lastlayer.arguments import a_path, choice, expect
from lastlayer.errors import LabelError, OptionError
from lastlayer.features.arrays import as_features
from lastlayer.features.data import Features
from lastlayer.features.importing import read_splits
from lastlayer.features.labels import number
from lastlayer.features.load import TABLES, load_features
from lastlayer.names import label_of
from lastlayer.reading import reading

CHOICES = ("train", "validation", "test", "all")


@dataclass(frozen=True)
class Rows:
    """Features of one split, with their labels where there are any."""

    split: str  # "" where there is none
    z: Tensor  # (n, h) float16 or float32
    y: Tensor | None  # (n,) int64
    names: tuple[str, ...] = ()  # the label of each class, as text
    columns: tuple[str, ...] = ()  # what z was read from: a name for each of its columns, or one


Source = Features | str | os.PathLike[str] | list[Rows]


def read_rows(
    source: Source,
    rows: str = "train",
    *,
    embedding: str | None = None,
    label: str | None = None,
    labelled: bool = True,
) -> list[Rows]:
    """Return the rows of features, by name, file or object, or of a table, split by split.

    Args:
        source: ``Features``, the name or file of some, or a file that ``lastlayer import`` takes;
            rows that were read before are given back.
        rows: ``train``, ``validation``, ``test`` or ``all``; a table without a split has one kind.
        embedding: The column, prefix or range of columns of a table that holds the embeddings.
        label: The label column, if not the usual one.
        labelled: Whether there must be labels.
    """
    choice(rows, CHOICES, "rows")
    if isinstance(source, list):
        for part in source:
            expect(part, Rows, "data", "rows that were read before")
        return source
    if isinstance(source, Features) or not _is_table(source):
        if embedding is not None:
            raise OptionError("--embedding is for tables only: a features file has no columns")
        found = _of_features(source, label)
    else:
        found = _of_table(source, embedding, label, labelled)
    chosen = [part for part in found if rows == "all" or part.split in ("", rows)]
    if not chosen:
        there = ", ".join(part.split for part in found)
        raise OptionError(f"expected rows of '{rows}', but there are only: {there}")
    return chosen


def _of_features(source: Features | str | os.PathLike[str], label: str | None) -> list[Rows]:
    if isinstance(source, Features):
        data = source if label is None else source.with_label(label)
    else:
        data = load_features(source, label)
    names = tuple(map(label_of, data.names[data.label]))
    return [
        Rows(name, split.z, split.labels.get(data.label), names)
        for name, split in data.splits.items()
    ]


def _of_table(
    source: str | os.PathLike[str], embedding: str | None, label: str | None, labelled: bool
) -> list[Rows]:
    splits = read_splits(source, embedding, label, labelled)
    columns = [next(iter(split.columns.items()), None) for split in splits.values()]
    if any(column is None for column in columns):
        return [
            Rows(name, as_features(split.z), None, columns=split.embedding)
            for name, split in splits.items()
        ]
    named = [column for column in columns if column is not None]
    codes, names = number(named[0][0], *(values for _, values in named))
    if any(not name for name in names):
        raise LabelError(f"expected a label for every sample, but one of '{named[0][0]}' is empty")
    return [
        Rows(name, as_features(split.z), y, names, split.embedding)
        for (name, split), y in zip(splits.items(), codes, strict=True)
    ]


def _is_table(source: str | os.PathLike[str]) -> bool:
    path = a_path(source)
    if path.suffix.lower() != ".safetensors":
        return path.suffix.lower() in TABLES or path.is_dir()
    if not path.is_file():
        return False
    with reading(path, "a safetensors file"), safe_open(path, framework="pt") as file:
        return "lastlayer" not in (file.metadata() or {})
