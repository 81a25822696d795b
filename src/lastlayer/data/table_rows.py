"""The rows of a table: features, labels and splits, read a piece at a time or whole."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lastlayer.core.checks import short
from lastlayer.core.names import first_few, look_up
from lastlayer.data.feature_columns import columns_in_order
from lastlayer.data.from_arrays import Say
from lastlayer.data.label_values import as_labels, check_finite
from lastlayer.data.tables.table import Array, Columns, Table
from lastlayer.data.tables.which_columns import (
    SPLITS,
    WORDS,
    Chosen,
    Selection,
    choose,
    only_label,
)
from lastlayer.errors import DataError, OptionError, ShapeError

# Rows of labels that are in memory at a time.
MOST_ROWS = 1 << 16


class Piece(NamedTuple):
    """Some rows of one split, or all of them."""

    split: str  # train, validation or test; "" where there is no split
    z: Array  # (n, h), or (n,) texts; empty where only labels were asked for
    columns: Columns  # labels by what they are to be called, each (n,)
    embedding: tuple[str, ...]  # the columns that z was read from


class TableRows:
    """The rows and columns of a table that a selection means; its labels may lie in another."""

    def __init__(self, table: Table, selection: Selection, beside: Table | None = None) -> None:
        self.table, self.labels, self.selection = table, beside or table, selection
        if beside is None:
            self.chosen = choose(table, selection)
        else:
            (vectors,) = table.columns
            (column,) = only_label(beside, list(beside.columns), selection)
            look_up(column, beside.columns, "column")
            self.chosen = {"": Chosen([vectors], {column: column})}
        of_each = [(*one.embedding, *one.labels.values()) for one in self.chosen.values()]
        self.used = [name for names in of_each for name in names]
        self.split = self._split_column()

    def pieces(self, rows: int | None = None, only_labels: bool = False) -> Iterator[Piece]:
        """Read the rows that are meant, that many at a time; None: as many as there are."""
        wanted = self.selection.rows
        there = [split for split in self.chosen if wanted == "all" or split in ("", wanted)]
        if not there:
            raise no_such_rows(wanted, self.chosen)
        for split in there:
            one, start = self.chosen[split], 0
            for read in self._read(one, rows, only_labels):
                columns = {name: read[column] for name, column in one.labels.items()}
                for name, values in columns.items():
                    check_finite(name, values, start)
                z = np.empty(0) if only_labels else self._features(one, read, start)
                start += len(next(iter(read.values())))
                if self.split:
                    yield from self._by_word(Piece("", z, columns, (*one.embedding,)), read)
                else:
                    yield Piece(split, z, columns, (*one.embedding,))
                # Let go of this piece before the next one is read.
                del read, z

    def whole(self) -> dict[str, Piece]:
        """Read the rows that are meant whole, by split."""
        held: dict[str, list[Piece]] = {}
        for piece in self.pieces():
            held.setdefault(piece.split, []).append(piece)
        return {split: _joined(pieces) for split, pieces in held.items()}

    def words(self) -> set[str]:
        """Return what the split column says, in lower case."""
        return {
            str(value).strip().lower()
            for read in self.labels.read_pieces([], [self.split], MOST_ROWS)
            for value in read[self.split].tolist()
        }

    def check_split(self, say: Say = lambda sentence: None) -> set[str]:
        """Return what the split column says; one that is only named like a split is left alone."""
        words = self.words() if self.split else set()
        unknown = sorted(words - WORDS.keys())
        if unknown and self.selection.split is None:
            say(f"took column '{self.split}' for no split: it says {short(unknown[0])}")
            self.split = ""
        return words

    def _split_column(self) -> str:
        """Return the column that says to which split a row belongs; "": there is none."""
        asked, columns = self.selection.split, self.labels.columns
        if set(self.chosen) != {""}:
            if asked:
                raise OptionError(
                    f"{self.table.source} is already split by its columns: leave out --split"
                )
            return ""
        found = next((n for n in columns if n.lower() in SPLITS), "") if asked is None else asked
        if found:
            look_up(found, columns, "column")
        return "" if found in self.used else found

    def _read(self, one: Chosen, rows: int | None, only_labels: bool) -> Iterator[Columns]:
        """Read features and labels side by side, also where they lie in two files."""
        labels = [*one.labels.values(), *filter(None, [self.split])]
        if only_labels:
            yield from self.labels.read_pieces([], labels, rows)
        elif self.selection.text:
            yield from self.table.read_pieces([], [*one.embedding, *labels], rows)
        elif self.labels is self.table:
            yield from self.table.read_pieces(one.embedding, labels, rows)
        else:
            held, start = self.labels.read([], labels), 0
            height = len(held[labels[0]])
            for read in self.table.read_pieces(one.embedding, [], rows):
                end = start + len(read[one.embedding[0]])
                yield read | {name: values[start:end] for name, values in held.items()}
                start = end
            if start != height:
                raise ShapeError(
                    f"{self.labels.source} must have as many rows as {self.table.source}, {start}, "
                    f"got {height}"
                )

    def _features(self, one: Chosen, read: Columns, start: int) -> Array:
        if not self.selection.text:
            return stacked(self.table, one, read, start)
        (name,) = one.embedding
        if read[name].dtype.kind not in "OU":
            raise DataError(f"column '{name}' must hold text, got {read[name].dtype}")
        return read[name]

    def _by_word(self, piece: Piece, read: Columns) -> Iterator[Piece]:
        """Divide rows by what their split column says, and yield those that are meant."""
        said = [WORDS.get(str(value).strip().lower()) for value in read[self.split].tolist()]
        words: Array = np.array(said, dtype=object)
        for word in ("train", "validation", "test"):
            own = words == word
            if self.selection.rows in ("all", word) and own.any():
                columns = {name: values[own] for name, values in piece.columns.items()}
                yield piece._replace(
                    split=word, z=piece.z[own] if len(piece.z) else piece.z, columns=columns
                )


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    columns = {n: np.concatenate([piece.columns[n] for piece in pieces]) for n in pieces[0].columns}
    return pieces[0]._replace(z=np.concatenate([piece.z for piece in pieces]), columns=columns)


def stacked(table: Table, one: Chosen, read: Columns, start: int = 0) -> Array:
    """Return the embeddings (n, h), of one column of vectors or of many of numbers.

    ``start`` is the first row that was read, for messages.
    """
    names = one.embedding
    for name in names:
        if read[name].dtype.kind in "OU":
            raise DataError(
                f"features must be numbers, got {read[name].dtype} in column '{name}' of "
                f"{table.source}, such as '{short(read[name].flat[0])}'"
            )
    z = read[names[0]]
    if len(names) > 1:
        if any(read[name].ndim != 1 for name in names):
            raise ShapeError(f"columns {names[0]} to {names[-1]} must hold one number per row")
        z = np.column_stack([read[name] for name in names])
    if z.ndim != 2:
        raise ShapeError(f"features must have shape (n, h), got {z.shape} in '{names[0]}'")
    if z.dtype.kind == "f" and z.itemsize > 4:
        with np.errstate(over="ignore"):
            z = z.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(z).all(axis=1))
    if len(bad):
        where = names[int((~np.isfinite(z[bad[0]])).argmax())] if len(names) > 1 else names[0]
        raise DataError(
            f"column '{where}' of {table.source} must be finite within {z.dtype}, got NaN or "
            f"infinity in row {start + bad[0]}"
        )
    return z


def no_such_rows(rows: str, there: Iterable[str]) -> OptionError:
    """Return an error for rows of a split that there is not."""
    return OptionError(f"there are no rows of '{rows}', only of: {', '.join(there)}")


def no_embedding() -> OptionError:
    """Return an error for the columns of embeddings of a features file."""
    return OptionError("--embedding is for tables only: a features file has one embedding")


def read_splits(
    tables: Mapping[str, Table], selection: Selection, say: Say = lambda sentence: None
) -> dict[str, Piece]:
    """Read every split of what ``open_table`` returns; under "" one that is to be drawn from.

    What is done is told to ``say``, sentence by sentence.
    """
    selection = replace(selection, rows="all")
    splits = (
        _read_one(TableRows(tables[""], selection), say)
        if set(tables) == {""}
        else _read_many(tables, replace(selection, split=""), say)
    )
    for name in next(iter(splits.values())).columns:
        parts = as_labels(*(piece.columns[name] for piece in splits.values()))
        for piece, values in zip(splits.values(), parts, strict=True):
            piece.columns[name] = values
    return splits


def names_of_columns(splits: Mapping[str, Piece]) -> tuple[str, ...]:
    """Return what the columns of the features are called; () where vectors were read."""
    embedding = next(iter(splits.values())).embedding
    return embedding if len(embedding) > 1 else ()


def _read_many(tables: Mapping[str, Table], selection: Selection, say: Say) -> dict[str, Piece]:
    splits: dict[str, Piece] = {}
    for name, table in tables.items():
        word = WORDS.get(name.lower())
        if word is None:
            say(f"left out '{name}', which is neither train, validation nor test")
            continue
        if word in splits:
            raise DataError(f"there are two {word} splits: rename or remove one")
        rows = TableRows(table, selection)
        if set(rows.chosen) != {""}:
            raise OptionError(f"{table.source} has splits of its own: leave out the other files")
        splits[word] = rows.whole()[""]
        if word == "train":
            _say_columns(rows, rows.chosen[""], say, mention_left_out=False)
    if "train" not in splits:
        raise DataError(f"there must be a split 'train', got {', '.join(tables)}")
    # Another file may have the same columns in another order.
    learned = splits["train"].embedding
    for name, piece in splits.items():
        rule = f"of {name} must be those of train"
        z = columns_in_order(piece.z, piece.embedding, learned, rule)
        splits[name] = piece._replace(z=z, embedding=learned)
    if len(splits) > 1:
        say("used its splits as they are: " + _sizes(splits))
    return splits


def _read_one(rows: TableRows, say: Say) -> dict[str, Piece]:
    _say_columns(rows, rows.chosen.get("") or rows.chosen["train"], say)
    words = rows.check_split(say)
    if rows.split:
        found = {WORDS.get(word) for word in words}
        if None in found or "train" not in found or len(found) == 1:
            few = [short(word) for word in sorted(words)[:5]]
            raise DataError(
                f"column '{rows.split}' must say 'train', and 'test' or 'validation', got {few}"
            )
    splits = rows.whole()
    if rows.split:
        say(f"used column '{rows.split}' as the split: " + _sizes(splits))
    elif "" not in splits:
        say("used its splits as they are: " + _sizes(splits))
    return splits


def _sizes(splits: Mapping[str, Piece]) -> str:
    found = [name for name in ("train", "test", "validation") if name in splits]
    return ", ".join(f"{len(splits[name].z)} {name}" for name in found)


def _say_columns(rows: TableRows, one: Chosen, say: Say, mention_left_out: bool = True) -> None:
    first, *others = one.embedding
    embedding = f"{1 + len(others)} columns {first} … {others[-1]}" if others else f"'{first}'"
    learned, *kept = one.labels or ("none",)
    also = f", also kept: {', '.join(kept)}" if kept else ""
    what = "text" if rows.selection.text else "embedding"
    say(f"{what}: {embedding}; label: '{learned}'{also}")
    left = [name for name in rows.table.columns if name not in (*rows.used, rows.split)]
    if left and mention_left_out:
        say(f"left out columns {first_few(left)}: --domain keeps one as labels")
