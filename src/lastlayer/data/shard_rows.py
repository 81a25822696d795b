"""Read one shard, some rows at a time: features and the labels of their classes, checked."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import short
from lastlayer.core.names import ClassName, label_of, look_up
from lastlayer.core.tensor_files import TensorStream, kind_of_file
from lastlayer.data.feature_columns import column_names, columns_in_order
from lastlayer.data.features import names_in_file
from lastlayer.data.from_arrays import as_features
from lastlayer.data.label_values import code, has_fraction, label_text, piece_of_labels
from lastlayer.data.made_by import Maker, maker_of
from lastlayer.data.shard_list import Shard
from lastlayer.data.table_rows import MOST_ROWS, TableRows, no_embedding, stacked
from lastlayer.data.tables.frames import open_parquet, open_shards
from lastlayer.data.tables.named_arrays import open_npy
from lastlayer.data.tables.open_table import open_table
from lastlayer.data.tables.table import Array, Table
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError, FileFormatError, OptionError, ShapeError

# Bytes of features that are in memory at a time, as float32.
BYTES = 24 << 20
NamesOf = tuple[Array, list[str]]  # for each row the number of its class, and their labels as text
Counts = dict[str, int]  # how many rows each class has


@dataclass(frozen=True)
class About:
    """What a shard holds, known from its labels and the width of its features."""

    width: int
    n: int  # rows that are meant
    numbers: bool  # whether its classes are whole numbers
    split: str = ""  # the column that says to which split a row belongs
    fraction: bool = False  # whether its labels are numbers with a fraction: then all are text
    columns: tuple[str, ...] = ()  # what the columns of its features are called
    made_by: Maker = field(default_factory=dict)  # what made them, as far as it is known
    print: str = ""  # by which a head knows the shard again


def look_at(shard: Shard, selection: Selection) -> tuple[About, Counts]:
    """Read the labels of a shard and the width of its features, and check both."""
    shard.check_unchanged()
    opened = _open(shard, selection)
    found: Counter[Any] = Counter()
    fraction, kinds = False, set()
    for values in opened.labels():
        kinds.add(values.dtype.kind)
        fraction = fraction or has_fraction(values)
        codes, distinct = code(values)
        of_each = np.bincount(codes, minlength=len(distinct)).tolist()
        found.update(dict(zip(distinct, of_each, strict=True)))
    counts: Counter[str] = Counter()
    for value, n in found.items():
        counts[label_text(value, fraction)] += n
    numbers = kinds <= {"i", "u", "f"} and not fraction
    about = About(
        opened.width(),
        sum(counts.values()),
        numbers,
        opened.split,
        fraction,
        opened.columns(),
        opened.made_by,
        shard.print_of(selection.rows if opened.cut and selection.rows != "all" else ""),
    )
    shard.check_unchanged()
    return about, dict(counts)


def read_shard(
    shard: Shard, selection: Selection, about: About
) -> Iterator[tuple[Tensor, NamesOf]]:
    """Read features (n, h) and their classes, piece by piece.

    What was given is right only once the iterator has ended: then the shard is known to be whole
    and unchanged. Until then nothing of it may be kept.
    """
    shard.check_unchanged()
    n = 0
    opened = _open(shard, replace(selection, split=about.split))
    columns = opened.columns()
    for z, values in opened.pieces(_rows_of(about.width)):
        if z.shape[1] != about.width:
            raise ShapeError(
                f"features of {shard.path} must have {about.width} columns as the other shards, "
                f"got {z.shape[1]}"
            )
        n += len(z)
        codes, distinct = code(values)
        yield (
            columns_in_order(z, columns, selection.columns),
            (codes, [label_text(value, about.fraction) for value in distinct]),
        )
        # Let go of this piece before the next one is read.
        del z
    shard.check_unchanged()
    if n != about.n:
        raise DataError(f"{shard.path} changed while it was read: run this again")


def _open(shard: Shard, selection: Selection) -> "_OfFeaturesFile | _OfTable":
    path = Path(shard.path)
    if path.suffix.lower() == ".safetensors" and kind_of_file(path) is not None:
        if selection.embedding is not None:
            raise no_embedding()
        return _OfFeaturesFile(path, selection)
    return _OfTable(shard, selection)


class _OfFeaturesFile:
    """The rows of a features file of ours."""

    split = ""

    def __init__(self, path: Path, selection: Selection) -> None:
        self.path, self.file = path, TensorStream(path, "features")
        try:
            names, label = names_in_file(self.file.metadata), self.file.metadata["label"]
            self.label = look_up(selection.label or label, {n: n for n in names}, "column")
            self.names = _as_numbers(
                [label_of(n) if isinstance(n, ClassName) else str(n) for n in names[self.label]]
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"{path} lacks a part of a features file: {error}") from error
        self.made_by = maker_of(self.file.metadata.get("origin"))
        there = [
            split for split in ("train", "test", "validation") if f"{split}.z" in self.file.held
        ]
        self.cut = len(there) > 1
        self.splits = [split for split in there if selection.rows in ("all", split)]
        if not there:
            raise FileFormatError(f"{path} lacks a part of a features file: train.z")

    def width(self) -> int:
        widths = {held.shape[1] for name, held in self.file.held.items() if name.endswith(".z")}
        if len(widths) != 1:
            raise FileFormatError(f"{self.path} holds features of several sizes: {sorted(widths)}")
        return widths.pop()

    def columns(self) -> tuple[str, ...]:
        names = self.file.metadata.get("columns", ())
        if not isinstance(names, list | tuple):
            raise FileFormatError(f"{self.path} must name its columns in a list")
        return column_names(self.width(), names)

    def labels(self) -> Iterator[Array]:
        for split in self.splits:
            yield from self._labels(split, MOST_ROWS)

    def pieces(self, rows: int) -> Iterator[tuple[Tensor, Array]]:
        for split in self.splits:
            labels = self._labels(split, rows)
            for z in self.file.rows(f"{split}.z", rows):
                if z.dtype not in (torch.float16, torch.float32):
                    raise FileFormatError(f"{self.path} holds features of type {z.dtype}")
                yield z, next(labels)
        self.file.verify()

    def _labels(self, split: str, rows: int) -> Iterator[Array]:
        name, n = f"{split}.{self.label}", self.file.held[f"{split}.z"].shape[0]
        held = self.file.held.get(name)
        if held is None or held.shape != (n,) or held.dtype != torch.int64:
            raise FileFormatError(
                f"{self.path} lacks labels '{self.label}' for {n} rows of {split}"
            )
        for y in self.file.rows(name, rows):
            codes: Array = y.numpy()
            if len(codes) and not 0 <= codes.min() <= codes.max() < len(self.names):
                raise FileFormatError(f"{self.path} has labels without a name in '{self.label}'")
            yield self.names[codes]


class _OfTable:
    """The rows of a table of another program; its labels may lie in another file."""

    def __init__(self, shard: Shard, selection: Selection) -> None:
        table, beside = _tables(shard)
        self.made_by: Maker = {}  # nobody says
        self.rows = TableRows(table, selection, beside)
        if selection.split is None:
            self.rows.check_split()
        self.split = self.rows.split
        self.cut = bool(self.split) or len(self.rows.chosen) > 1

    def width(self) -> int:
        one, table = next(iter(self.rows.chosen.values())), self.rows.table
        known = table.known_width(one.embedding[0]) if len(one.embedding) == 1 else None
        if known is not None:
            return known
        read = next(iter(table.read_pieces(one.embedding, [], 1, most=1)))
        return int(stacked(table, one, read).shape[1])

    def columns(self) -> tuple[str, ...]:
        # A table that has its splits in columns of their own has vectors in them.
        embedding = next(iter(self.rows.chosen.values())).embedding
        return tuple(embedding) if len(embedding) > 1 else ()

    def labels(self) -> Iterator[Array]:
        for piece in self.rows.pieces(MOST_ROWS, only_labels=True):
            yield piece_of_labels(*next(iter(piece.columns.items())))

    def pieces(self, rows: int) -> Iterator[tuple[Tensor, Array]]:
        for piece in self.rows.pieces(rows):
            yield as_features(piece.z), piece_of_labels(*next(iter(piece.columns.items())))
            # Let go of this piece before the next one is read.
            del piece


def _tables(shard: Shard) -> tuple[Table, Table | None]:
    """Open the table of a shard, and the one that has its labels, where that is another."""
    path = Path(shard.path)
    if shard.labels:
        return open_npy(path, alone=True), open_parquet(Path(shard.labels))
    if shard.names is not None:
        return open_shards(path, [path], shard.names), None
    if path.suffix.lower() == ".npy":
        above = path.parent.parent
        raise OptionError(
            f"{path} has no labels: "
            + (
                f"give {above}, the folder that has metadata, too"
                if (above / "metadata").is_dir()
                else "put them into metadata/*.parquet beside a folder img_emb/*.npy, or write "
                "shards of .parquet or .safetensors"
            )
        )
    return open_table(path)[""], None


def _rows_of(width: int) -> int:
    return max(1, min(MOST_ROWS, BYTES // (4 * width)))


def _as_numbers(names: Sequence[str]) -> Array:
    """Return names as numbers where they are those of a column of numbers, in its order."""
    texts: Array = np.array(names, dtype=object)
    try:
        values = np.array([int(name) for name in names], dtype=np.int64)
    except (ValueError, OverflowError):
        return texts
    plain = [str(value) for value in values] == list(names) and (np.diff(values) > 0).all()
    return values if plain else texts


def no_such_class(shard: Shard, name: str) -> DataError:
    """Return an error for a class that was not there when the labels were read."""
    return DataError(f"{shard.path} changed while it was read: class '{short(name)}' is new")
