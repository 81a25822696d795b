"""Rows to learn, predict or forget: from features, or straight from another program's table."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import a_path, choice, expect, short
from lastlayer.core.names import class_name, label_of, listed, look_up, printable
from lastlayer.core.tensor_files import kind_of_file
from lastlayer.data.corrections import Corrections, Suspects
from lastlayer.data.feature_set import FeatureSet
from lastlayer.data.features import Features
from lastlayer.data.from_arrays import as_features
from lastlayer.data.label_values import check_none_empty, number
from lastlayer.data.load import TABLES, load_features
from lastlayer.data.made_by import Maker
from lastlayer.data.table_rows import no_embedding, no_such_rows, read_splits
from lastlayer.data.tables.open_table import open_table
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError, LabelError, OptionError

CHOICES = ("train", "validation", "test", "all")


@dataclass(frozen=True)
class Rows:
    """Features of one split, with their labels where there are any."""

    split: str  # "" where there is none
    z: Tensor  # (n, h) float16 or float32
    y: Tensor | None  # (n,) int64
    names: tuple[str, ...] = ()  # the label of each class, as text
    columns: tuple[str, ...] = ()  # what z was read from: a name for each of its columns, or one
    label: str = ""  # the column that y is from
    also: Mapping[str, Any] = field(default_factory=dict)  # further columns, (n,) each
    weight: Tensor | None = None  # (n,) float64 what each row weighs; None: 1
    made_by: Maker = field(default_factory=dict)  # what made them, as far as it is known
    source: str = ""  # the name of the file, without its folder, or of the features
    accepted: bool = False  # whether to take them, whatever made them

    def weighed(self, column: str) -> "Rows":
        """Return the rows with the numbers of a further column as their weights."""
        try:
            weight = torch.tensor(np.asarray(self.also[column]).astype(np.float64))
        except KeyError:
            raise DataError(f"column '{column}' was not read beside the labels") from None
        except (TypeError, ValueError) as error:
            raise DataError(f"column '{column}' must hold numbers: {short(error)}") from None
        return replace(self, weight=weight)

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
    also: Sequence[str] = (),
) -> list[Rows]:
    """Return the rows of features, by name, file or object, or of a table, split by split.

    Rows that were read before are given back; a table without a split has one kind. What is meant
    of a table, or of the label columns of features, is said as in a ``Selection``, where ``also``
    is called domains.
    """
    choice(rows, CHOICES, "rows")
    if isinstance(source, list):
        for part in source:
            expect(part, Rows, "data", "rows that were read before")
        return source
    if isinstance(source, Features) or not is_table(source):
        if embedding is not None:
            raise no_embedding()
        found = _of_features(source, label, also)
    else:
        selection = Selection(
            rows, embedding, label, labelled=labelled, columns=columns, domains=also
        )
        name = printable(a_path(source).name)
        found = [replace(part, source=name) for part in _of_table(source, selection)]
    chosen = [part for part in found if rows == "all" or part.split in ("", rows)]
    if not chosen:
        raise no_such_rows(rows, (part.split for part in found))
    return chosen


def _of_features(
    source: Features | str | os.PathLike[str], label: str | None, also: Sequence[str]
) -> list[Rows]:
    if isinstance(source, Features):
        data = source if label is None else source.with_label(label)
    else:
        data = load_features(source, label)
    names = tuple(map(label_of, data.names[data.label]))
    about: dict[str, Any] = {"names": names, "columns": data.columns, "label": data.label}
    about |= {"made_by": data.made_by, "source": _named(data)}
    return [
        Rows(name, split.z, split.labels.get(data.label), **about, also=_texts(data, split, also))
        for name, split in data.splits.items()
    ]


def _named(data: Features) -> str:
    """Return what features are called, and a digest by which to know them."""
    called = data.origin.dataset or "features"
    return f"{called} (fingerprint {data.fingerprint[:12]})" if data.fingerprint else called


def _texts(data: Features, split: FeatureSet, columns: Sequence[str]) -> dict[str, Any]:
    """Return label columns as text, of the splits that have them."""
    for name in columns:
        look_up(name, data.names, "column")
    named = {name: np.array([label_of(text) for text in data.names[name]]) for name in columns}
    return {name: named[name][split.labels[name]] for name in columns if name in split.labels}


def _of_table(source: str | os.PathLike[str], selection: Selection) -> list[Rows]:
    splits = read_splits(open_table(source), selection)
    further = set(selection.domains) - {selection.label}
    found = [
        Rows(name, as_features(split.z), None, columns=split.embedding, also=split.columns)
        for name, split in splits.items()
    ]
    labels = [next((name for name in part.also if name not in further), "") for part in found]
    if "" in labels:
        return found
    learned = (part.also[label] for part, label in zip(found, labels, strict=True))
    codes, names = number(labels[0], *learned)
    check_none_empty(labels[0], names)
    return [
        replace(part, y=y, names=names, label=label,
                also={name: part.also[name] for name in selection.domains})
        for part, label, y in zip(found, labels, codes, strict=True)
    ]  # fmt: skip


def is_table(source: str | os.PathLike[str]) -> bool:
    """Return whether a file or a folder is a table of another program, not features of ours."""
    path = a_path(source)
    if path.suffix.lower() != ".safetensors":
        return path.suffix.lower() in TABLES or path.is_dir()
    return path.is_file() and kind_of_file(path) is None


def answers_of(parts: Sequence[Rows], column: str) -> dict[str, str]:
    """Return what each label stands for in a coarser column, read beside it; one thing each."""
    if lacking := [part.split for part in parts if column not in part.also]:
        raise DataError(f"column '{column}' was not read with the rows of {listed(lacking)}")
    codes, coarse = number(column, *(part.also[column] for part in parts))
    check_none_empty(column, coarse)
    found: dict[str, str] = {}
    for part, own in zip(parts, codes, strict=True):
        pairs = torch.stack([part.labelled, own], dim=1).unique(dim=0)
        for label, answer in ((part.names[a], label_of(coarse[b])) for a, b in pairs.tolist()):
            if found.setdefault(label, answer) != answer:
                raise LabelError(
                    f"each label must go with one value of '{column}' to be answered by it, but "
                    f"{short(label)} goes with {short(found[label])} and {short(answer)}: is "
                    f"'{column}' the coarser column, and were no labels changed?"
                )
    return found


def corrected(
    parts: list[Rows], drop: Suspects | None = None, relabel: Suspects | None = None
) -> list[Rows]:
    """Return rows without the suspects of an audit, or with the labels that it suggests.

    They are the rows of the one split that was audited.
    """
    given = [None if s is None else Corrections.read(s) for s in (relabel, drop)]
    if not any(given):
        return parts
    if len(parts) > 1:
        raise OptionError("drop and relabel are for rows of one split: choose it with rows")
    (part,) = parts
    names: tuple[str, ...] = tuple(map(class_name, part.names))
    for found in given:  # both are of the rows as they are
        if found is not None:
            found.check(part.labelled, names)
    wrong, gone = given
    did = [
        f"{len(found.rows)} row{'s' * (len(found.rows) != 1)} {what}"
        for found, what in ((gone, "left out"), (wrong, "relabelled"))
        if found is not None
    ]
    if wrong is not None:
        y, names = wrong.relabel(part.labelled, names)
        part = replace(part, y=y, names=tuple(map(label_of, names)))
    if gone is not None:
        kept = gone.others(len(part.z))
        also = {name: values[kept.numpy()] for name, values in part.also.items()}
        part = replace(part, z=part.z[kept], y=part.labelled[kept], also=also)
    return [replace(part, source=f"{part.source}, {' and '.join(did)} after an audit")]
