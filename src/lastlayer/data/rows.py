"""Rows to learn, predict or forget: from features, or straight from another program's table."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from lastlayer.core.checks import a_path, choice, expect
from lastlayer.core.names import label_of
from lastlayer.core.tensor_files import kind_of_file
from lastlayer.data.features import Features
from lastlayer.data.from_arrays import as_features
from lastlayer.data.labels import check_none_empty, number
from lastlayer.data.load import TABLES, load_features
from lastlayer.data.table_rows import no_embedding, no_such_rows, read_splits
from lastlayer.data.tables import open_table
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError

CHOICES = ("train", "validation", "test", "all")


@dataclass(frozen=True)
class Rows:
    """Features of one split, with their labels where there are any."""

    split: str  # "" where there is none
    z: Tensor  # (n, h) float16 or float32
    y: Tensor | None  # (n,) int64
    names: tuple[str, ...] = ()  # the label of each class, as text
    columns: tuple[str, ...] = ()  # what z was read from: a name for each of its columns, or one

    @property
    def labelled(self) -> Tensor:
        """The labels, which there must be."""
        if self.y is None:
            raise DataError("these rows have no labels")
        return self.y


Source = Features | str | os.PathLike[str] | list[Rows]


def read_rows(
    source: Source,
    rows: str = "train",
    *,
    embedding: str | None = None,
    label: str | None = None,
    labelled: bool = True,
    columns: Sequence[str] = (),
) -> list[Rows]:
    """Return the rows of features, by name, file or object, or of a table, split by split.

    Args:
        source: ``Features``, the name or file of some, or a file that ``lastlayer import`` takes;
            rows that were read before are given back.
        rows: ``train``, ``validation``, ``test`` or ``all``; a table without a split has one kind.
        embedding: The column, prefix or range of columns of a table that holds the embeddings.
        label: The label column, if not the usual one.
        labelled: Whether there must be labels.
        columns: What to take as embeddings of a table that has columns of these names, where it
            does not say by itself.
    """
    choice(rows, CHOICES, "rows")
    if isinstance(source, list):
        for part in source:
            expect(part, Rows, "data", "rows that were read before")
        return source
    if isinstance(source, Features) or not _is_table(source):
        if embedding is not None:
            raise no_embedding()
        found = _of_features(source, label)
    else:
        selection = Selection(rows, embedding, label, labelled=labelled, columns=columns)
        found = _of_table(source, selection)
    chosen = [part for part in found if rows == "all" or part.split in ("", rows)]
    if not chosen:
        raise no_such_rows(rows, (part.split for part in found))
    return chosen


def _of_features(source: Features | str | os.PathLike[str], label: str | None) -> list[Rows]:
    if isinstance(source, Features):
        data = source if label is None else source.with_label(label)
    else:
        data = load_features(source, label)
    names = tuple(map(label_of, data.names[data.label]))
    return [
        Rows(name, split.z, split.labels.get(data.label), names, data.columns)
        for name, split in data.splits.items()
    ]


def _of_table(source: str | os.PathLike[str], selection: Selection) -> list[Rows]:
    splits = read_splits(open_table(source), selection)
    columns = [next(iter(split.columns.items()), None) for split in splits.values()]
    named = [column for column in columns if column is not None]
    if len(named) < len(columns):
        return [
            Rows(name, as_features(split.z), None, columns=split.embedding)
            for name, split in splits.items()
        ]
    codes, names = number(named[0][0], *(values for _, values in named))
    check_none_empty(named[0][0], names)
    return [
        Rows(name, as_features(split.z), y, names, split.embedding)
        for (name, split), y in zip(splits.items(), codes, strict=True)
    ]


def _is_table(source: str | os.PathLike[str]) -> bool:
    path = a_path(source)
    if path.suffix.lower() != ".safetensors":
        return path.suffix.lower() in TABLES or path.is_dir()
    return path.is_file() and kind_of_file(path) is None
