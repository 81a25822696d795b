"""Read one shard, some rows at a time: features and the labels of their classes, checked."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.arguments import short
from lastlayer.errors import DataError, FileFormatError, LabelError, OptionError, ShapeError
from lastlayer.features.arrays import as_features
from lastlayer.features.data import names_in_file
from lastlayer.features.importing import stacked
from lastlayer.features.labels import number
from lastlayer.features.tables import Array, Table, open_table
from lastlayer.features.tables.arrays import open_array
from lastlayer.features.tables.choosing import SPLITS, WORDS, Chosen, choose
from lastlayer.features.tables.frames import open_parquet, open_shards
from lastlayer.files import TensorStream, kind_of_file
from lastlayer.names import ClassName, label_of, look_up
from lastlayer.shards.listing import Shard

BYTES = 24 << 20  # of features that are in memory at a time, as float32
MOST_ROWS = 1 << 16
NamesOf = tuple[Array, list[str]]  # for each row the number of its class, and their labels as text


@dataclass(frozen=True)
class Wish:
    """Which rows and columns of shards are meant."""

    rows: str = "train"
    embedding: str | None = None
    label: str | None = None
    split: str | None = None  # the column of tables that says of which split a row is; "": none

    @property
    def identity(self) -> dict[str, Any]:
        """What names it."""
        return asdict(self)


@dataclass(frozen=True)
class About:
    """What a shard holds, known from its labels and the width of its features."""

    width: int
    n: int  # rows that are meant
    numbers: bool  # whether its classes are whole numbers
    split: str = ""  # the column that says of which split a row is
    fraction: bool = False  # whether its labels are numbers with a fraction: then all are text


Counts = dict[str, int]  # how many rows each class has


def look_at(shard: Shard, wish: Wish) -> tuple[About, Counts]:
    """Read the labels of a shard and the width of its features, and check what they tell."""
    shard.check_unchanged()
    opened = _open(shard, wish)
    found = opened.survey()
    shard.check_unchanged()
    return found


def read_shard(shard: Shard, wish: Wish, about: About) -> Iterator[tuple[Tensor, NamesOf]]:
    """Read features (n, h) and their classes, piece by piece.

    What was given is right only once the iterator has ended: then the shard is known to be whole
    and unchanged. Until then nothing of it may be kept.
    """
    shard.check_unchanged()
    n = 0
    for z, names in _open(shard, replace(wish, split=about.split)).pieces(about):
        if z.shape[1] != about.width:
            raise ShapeError(
                f"expected features of size {about.width} as in the other shards, got "
                f"{z.shape[1]} in {shard.path}"
            )
        n += len(z)
        yield z, names
        del z  # before the next piece is read
    shard.check_unchanged()
    if n != about.n:
        raise DataError(f"{shard.path} changed while it was read: run this again")


def _open(shard: Shard, wish: Wish) -> "_Ours | _OfTable":
    path = Path(shard.path)
    if path.suffix.lower() == ".safetensors" and kind_of_file(path) is not None:
        if wish.embedding is not None:
            raise OptionError("expected --embedding with a table only: features have no columns")
        return _Ours(path, wish)
    return _OfTable(shard, wish)


class _Ours:
    """A features file of ours."""

    def __init__(self, path: Path, wish: Wish) -> None:
        self.path, self.file = path, TensorStream(path, "features")
        try:
            names, label = names_in_file(self.file.metadata), self.file.metadata["label"]
            self.label = look_up(wish.label or label, {name: name for name in names}, "column")
            self.names = [
                label_of(name) if isinstance(name, ClassName) else str(name)
                for name in names[self.label]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"{path} lacks a part of a features file: {error}") from error
        there = [
            split for split in ("train", "test", "validation") if f"{split}.z" in self.file.held
        ]
        self.splits = [split for split in there if wish.rows in ("all", split)]
        if not there:
            raise FileFormatError(f"{path} lacks a part of a features file: train.z")

    def survey(self) -> tuple[About, Counts]:
        counts = np.zeros(len(self.names), dtype=np.int64)
        for split in self.splits:
            for y in self._labels(split, MOST_ROWS):
                counts += np.bincount(y, minlength=len(counts))[: len(counts)]
        known = {name: int(n) for name, n in zip(self.names, counts, strict=True) if n}
        widths = {held.shape[1] for name, held in self.file.held.items() if name.endswith(".z")}
        if len(widths) != 1:
            raise FileFormatError(f"{self.path} holds features of several sizes: {sorted(widths)}")
        return About(widths.pop(), int(counts.sum()), _in_order(self.names)), known

    def pieces(self, about: About) -> Iterator[tuple[Tensor, NamesOf]]:
        rows = _rows_of(about.width)
        for split in self.splits:
            labels = self._labels(split, rows)
            for z in self.file.rows(f"{split}.z", rows):
                if z.dtype not in (torch.float16, torch.float32):
                    raise FileFormatError(f"{self.path} holds features of type {z.dtype}")
                yield z, (next(labels), self.names)
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
            yield codes


class _OfTable:
    """A table of another program; its labels may lie in another file."""

    def __init__(self, shard: Shard, wish: Wish) -> None:
        self.wish, self.shard = wish, shard
        self.features, self.beside = _tables(shard)
        labels = self.beside or self.features
        if self.beside is None:
            self.chosen = _chosen(labels, wish)
        else:
            (vectors,) = self.features.columns
            column = wish.label or _only_label(labels)
            look_up(column, labels.columns, "column")
            self.chosen = [Chosen([vectors], {column: column})]
        self.split = wish.split
        if self.split is None:
            self.split = next((n for n in labels.columns if n.lower() in SPLITS), "")
        used = [name for one in self.chosen for name in (*one.embedding, *one.labels.values())]
        if self.split in used or self.split not in labels.columns:
            self.split = ""

    def survey(self) -> tuple[About, Counts]:
        found: dict[Any, int] = {}
        known, fraction, kinds = True, False, set()
        for one in self.chosen:
            (column,) = one.labels.values()
            for read in self._labels(one):
                values = _checked(column, read[column])
                if self.split:
                    words = _words(read[self.split])
                    known = known and words is not None
                    if known and words is not None:
                        values = values[_of_split(words, self.wish.rows)]
                kinds.add(values.dtype.kind)
                fraction = fraction or _has_fraction(values)
                for value, n in _counted(values):
                    found[value] = found.get(value, 0) + n
        if not known:  # what looked like a split is not one: all rows are meant
            self.split = ""
            return self.survey()
        return self._about(found, fraction, kinds)

    def _about(
        self, found: dict[Any, int], fraction: bool, kinds: set[str]
    ) -> tuple[About, Counts]:
        counts: Counts = {}
        for value, n in found.items():
            name = _name(value, fraction)
            counts[name] = counts.get(name, 0) + n
        numbers = kinds <= {"i", "u", "f"} and not fraction
        about = About(self._width(), sum(counts.values()), numbers, self.split or "", fraction)
        return about, counts

    def _width(self) -> int:
        columns = self.chosen[0].embedding
        known = self.features.known_width(columns[0]) if len(columns) == 1 else None
        if known is not None:
            return known
        read = next(iter(self.features.read_pieces(columns, [], 1, most=1)))
        return int(stacked(self.features, columns, read).shape[1])

    def _labels(self, one: Chosen) -> Iterator[dict[str, Array]]:
        columns = [*one.labels.values(), *([self.split] if self.split else [])]
        return (self.beside or self.features).read_pieces([], columns, MOST_ROWS)

    def pieces(self, about: About) -> Iterator[tuple[Tensor, NamesOf]]:
        for one in self.chosen:
            yield from self._pieces_of(one, about)

    def _pieces_of(self, one: Chosen, about: About) -> Iterator[tuple[Tensor, NamesOf]]:
        (column,) = one.labels.values()
        further = [column, *([self.split] if self.split else [])]
        rows, start = _rows_of(about.width), 0
        for read in self._together(one.embedding, further, rows):
            z = as_features(stacked(self.features, one.embedding, read, start))
            start += len(z)
            values = _checked(column, read[column])
            if self.split:
                words = _words(read[self.split])
                if words is None:
                    raise DataError(f"{self.shard.path} changed while it was read: run this again")
                mine = _of_split(words, self.wish.rows)
                z, values = z[torch.from_numpy(mine)], values[mine]
            yield z, _numbered(values, about.fraction)
            del read, z  # before the next piece is read

    def _together(
        self, embedding: Sequence[str], labels: Sequence[str], rows: int
    ) -> Iterator[dict[str, Array]]:
        """Read features and labels side by side, also where they lie in two files."""
        if self.beside is None:
            yield from self.features.read_pieces(embedding, labels, rows)
            return
        waiting = _Waiting(self.beside.read_pieces([], labels, rows))
        for read in self.features.read_pieces(embedding, [], rows):
            yield read | waiting.take(len(read[embedding[0]]), self.shard)
        waiting.check_empty(self.shard)


class _Waiting:
    """Rows of a table that are taken in other numbers than they come."""

    def __init__(self, pieces: Iterator[dict[str, Array]]) -> None:
        self._pieces, self._held = pieces, dict[str, Array]()

    def take(self, n: int, shard: Shard) -> dict[str, Array]:
        while len(next(iter(self._held.values()), ())) < n:
            more = next(self._pieces, None)
            if more is None:
                raise _unequal(shard)
            held = self._held
            self._held = {k: np.concatenate([held[k], v]) if held else v for k, v in more.items()}
        taken = {name: values[:n] for name, values in self._held.items()}
        self._held = {name: values[n:] for name, values in self._held.items()}
        return taken

    def check_empty(self, shard: Shard) -> None:
        if any(map(len, self._held.values())) or next(self._pieces, None) is not None:
            raise _unequal(shard)


def _unequal(shard: Shard) -> ShapeError:
    return ShapeError(f"expected as many rows in {shard.labels} as in {shard.path}")


def _tables(shard: Shard) -> tuple[Table, Table | None]:
    path = Path(shard.path)
    if shard.labels:
        return open_array(path), open_parquet(Path(shard.labels))
    if shard.names is not None:
        return open_shards(path, [path], shard.names), None
    if path.suffix.lower() == ".npy":
        above = path.parent.parent
        raise OptionError(
            f"expected labels for {path}: "
            + (
                f"give {above}, the folder that has metadata, too"
                if (above / "metadata").is_dir()
                else "put them into metadata/*.parquet beside a folder img_emb/*.npy, or write "
                "shards of .parquet or .safetensors"
            )
        )
    return open_table(path)[""], None


def _chosen(table: Table, wish: Wish) -> list[Chosen]:
    """Find the columns; those of the splits that are meant, where each split has its own."""
    chosen = choose(table, wish.embedding, wish.label)
    return [one for split, one in chosen.items() if wish.rows == "all" or split in ("", wish.rows)]


def _only_label(table: Table) -> str:
    (one,) = choose(Table(table.source, {"": 2, **table.columns}, table.get), None, None).values()
    (column,) = one.labels.values()
    return column


def _checked(column: str, values: Array) -> Array:
    """Return labels as numbers or as text; refuse what is neither, and what is missing."""
    if values.ndim != 1:
        raise ShapeError(f"expected labels '{column}' of shape (n,), got {values.shape}")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise LabelError(
                f"expected a label for every sample, but '{column}' has NaN or infinity"
            )
        return values
    if values.dtype.kind in "iu":
        return values
    (codes,), names = number(column, values)
    if "" in names:
        raise LabelError(f"expected a label for every sample, but one of '{column}' is empty")
    if values.dtype.kind == "O" and all(type(value) is int for value in values.tolist()):
        return values.astype(np.int64)
    texts: Array = np.array(names, dtype=object)[codes.numpy()]
    return texts


def _has_fraction(values: Array) -> bool:
    """Tell whether labels are numbers that cannot all be read as whole ones."""
    return values.dtype.kind == "f" and not bool(
        (values == values.round()).all() and (np.abs(values) < 2**53).all()
    )


def _counted(values: Array) -> Iterator[tuple[Any, int]]:
    codes, found = _coded(values)
    yield from zip(found, np.bincount(codes, minlength=len(found)).tolist(), strict=True)


def _numbered(values: Array, fraction: bool) -> NamesOf:
    """Number the classes of some rows, in any order, and give their names."""
    codes, found = _coded(values)
    return codes, [_name(value, fraction) for value in found]


def _coded(values: Array) -> tuple[Array, list[Any]]:
    if values.dtype.kind in "iuf":
        found, codes = np.unique(values, return_inverse=True)
        return codes, list(found)
    number: dict[str, int] = {}
    listed = [number.setdefault(value, len(number)) for value in values.tolist()]
    return np.array(listed, dtype=np.int64), list(number)


def _name(value: Any, fraction: bool) -> str:
    """Name a class: 3.0 is class 3, unless others of its shard have a fraction."""
    return str(int(value)) if isinstance(value, np.floating) and not fraction else str(value)


def _words(values: Array) -> Array | None:
    """Read a column as splits; None: it says something else."""
    words = [WORDS.get(str(value).strip().lower()) for value in values.tolist()]
    found: Array = np.array(words, dtype=object)
    return None if None in words else found


def _of_split(words: Array, rows: str) -> Any:
    return np.ones(len(words), dtype=bool) if rows == "all" else words == rows


def _rows_of(width: int) -> int:
    return max(1, min(MOST_ROWS, BYTES // (4 * width)))


def _in_order(names: Sequence[str]) -> bool:
    """Tell whether names are whole numbers in their order, as those of number columns are."""
    try:
        values = [int(name) for name in names]
    except ValueError:
        return False
    plain = all(str(value) == name for value, name in zip(values, names, strict=True))
    return plain and values == sorted(values)


def no_such_class(shard: Shard, name: str) -> DataError:
    """Say that a class has appeared which was not there when the labels were read."""
    return DataError(f"{shard.path} changed while it was read: class '{short(name)}' is new")
