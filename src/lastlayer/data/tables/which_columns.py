"""Which rows and columns of a table are meant: by name, prefix or range, or as the only choice."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lastlayer.core.checks import expect
from lastlayer.core.names import listed, look_up
from lastlayer.data.tables.table import Table
from lastlayer.errors import OptionError

WORDS = {
    "train": "train", "training": "train", "tr": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test", "te": "test",
}  # fmt: skip
_WORD = "|".join(WORDS)
_AFTER = re.compile(rf"(.+)[_.\-/ ]({_WORD})$", re.IGNORECASE | re.DOTALL)
_BEFORE = re.compile(rf"({_WORD})[_.\-/ ](.+)$", re.IGNORECASE | re.DOTALL)
LABELS = ("y", "label", "labels", "target", "targets", "class")
SPLITS = ("split", "subset", "partition", "set")


@dataclass(frozen=True)
class Selection:
    """Which rows and columns of a table, a features file or of shards are meant."""

    rows: str = "train"  # or validation, test, all
    # A column of vectors, or columns of numbers by prefix (z_*) or range (z_0:z_383); None: the
    # only one that there is.
    embedding: str | None = None
    label: str | None = None  # the column to learn; None: one that is named y, label or target
    split: str | None = None  # says to which split a row belongs; None: one named so; "": none
    domains: Sequence[str] = ()  # further columns to keep as labels
    labelled: bool = True  # whether there must be labels
    text: bool = False  # whether the "embedding" is a text that is still to be embedded
    # Names of columns that were learned, in their order: of a table that has them, they are the
    # embedding where nothing else says which columns are.
    columns: Sequence[str] = ()
    only_other: bool = False  # whether the only other column is the label, whatever it is called

    def __post_init__(self) -> None:
        """Refuse names of columns that are not text."""
        expect(self.domains, (list, tuple), "domains", "a list of names")
        for name in (self.embedding, self.label, self.split):
            expect(name, (str, type(None)), "the name of a column", "text")
        for name in self.domains:
            expect(name, str, "the name of a column", "text")
        object.__setattr__(self, "domains", tuple(self.domains))
        object.__setattr__(self, "columns", tuple(self.columns))


class Chosen(NamedTuple):
    """The columns that make the features of one split."""

    embedding: list[str]
    labels: dict[str, str]  # what it is to be called → the column's name


def parted(name: str) -> tuple[str, str]:
    """Split the name of a column into what it holds and which split it belongs to.

    >>> parted("X_train"), parted("test.z"), parted("species")
    (('X', 'train'), ('z', 'test'), ('species', ''))
    """
    if found := _AFTER.match(name):
        return found[1], WORDS[found[2].lower()]
    if found := _BEFORE.match(name):
        return found[2], WORDS[found[1].lower()]
    return name, ""


def choose(table: Table, selection: Selection) -> dict[str, Chosen]:
    """Find the columns that are meant, for each split that has columns of its own.

    A table with ``z_train`` and ``z_test`` has them under "train", "validation" and "test", any
    other under "".
    """
    embedding, domains = selection.embedding, selection.domains
    if by_split := _by_split(table, embedding):
        first = next(iter(by_split))
        named = [base for base, split in map(parted, table.columns) if split == first]
        bases = [parted(n)[0] for n in (*only_label(table, named, selection), *domains)]
        return {
            split: Chosen([column], {base: _of_split(table, base, split, column) for base in bases})
            for split, column in by_split.items()
        }
    if embedding is None:
        columns = _only_vectors(table, selection.columns)
    else:
        columns = _as_learned(table, embedding, selection.columns) or select(table, embedding)
    others = [name for name in table.columns if name not in columns]
    wanted = list(dict.fromkeys((*only_label(table, others, selection), *domains)))
    for name in wanted:
        look_up(name, table.columns, "column")
        if name in columns and len(columns) > 1:
            raise OptionError(
                f"'{name}' is part of the embedding ({columns[0]} to {columns[-1]}) and cannot be "
                "a label or domain too: name another, or another --embedding"
            )
    return {"": Chosen(columns, {name: name for name in wanted})}


def _as_learned(table: Table, embedding: str, learned: Sequence[str]) -> list[str]:
    """Return the columns that were learned, if all are there and these words meant them then.

    A range means other columns where a table has them in another order.
    """
    if len(learned) < 2 or any(table.columns.get(name) != 1 for name in learned):
        return []
    first, colon, last = embedding.partition(":")
    return [*learned] if colon and (first, last) == (learned[0], learned[-1]) else []


def select(table: Table, embedding: str) -> list[str]:
    """Return the columns that a name, a prefix (z_* or z_) or a range (z_0:z_383) means."""
    names = list(table.columns)
    if embedding in table.columns:
        return [embedding]
    first, colon, last = embedding.partition(":")
    if colon and first in table.columns and last in table.columns:
        begin, end = names.index(first), names.index(last)
        if begin > end:
            raise OptionError(f"'{first}' comes after '{last}' in {table.source}: swap them")
        return names[begin : end + 1]
    prefix = embedding.removesuffix("*")
    found = [name for name in names if name.startswith(prefix) and name != prefix]
    numbered = [name for name in found if name.removeprefix(prefix).isdecimal()]
    if numbered and (prefix == embedding or len(numbered) == len(found)):
        return sorted(numbered, key=lambda name: int(name.removeprefix(prefix)))
    if prefix != embedding and prefix and found:
        return found
    look_up(embedding, table.columns, "column")
    raise AssertionError  # look_up has raised


def _by_split(table: Table, embedding: str | None) -> dict[str, str]:
    """Return the column of embeddings of each split; {} unless there are several splits."""
    groups: dict[str, dict[str, str]] = {}
    for name, dimensions in table.columns.items():
        base, split = parted(name)
        if split and (dimensions == 2 or embedding is not None):
            groups.setdefault(base, {})[split] = name
    groups = {base: group for base, group in groups.items() if len(group) > 1 and "train" in group}
    if embedding is not None:
        base = embedding if embedding in groups else parted(embedding)[0]
        if embedding in table.columns and parted(embedding)[1] == "":
            return {}
        return groups.get(base, {})
    return next(iter(groups.values())) if len(groups) == 1 else {}


def _of_split(table: Table, base: str, split: str, embedding: str) -> str:
    """Find the column of labels that belongs to the embeddings of a split."""
    for name in table.columns:
        if parted(name) == (base, split):
            return name
    raise OptionError(
        f"{table.source} has no labels '{base}' for '{embedding}': there are "
        f"{', '.join(n for n in table.columns if parted(n)[0] == base) or 'none'}; name the test "
        "set with --test FILE if it is in another file"
    )


def _only_vectors(table: Table, learned: Sequence[str]) -> list[str]:
    """Return the one column with a vector in each row, or the one row of numbered columns.

    Where there is no such column, or more than one, those that were learned are meant.
    """
    vectors = [name for name, dimensions in table.columns.items() if dimensions == 2]
    if len(vectors) == 1:
        return vectors
    prefixes: dict[str, int] = {}
    for name in table.columns:
        prefix = name.rstrip("0123456789")
        if prefix != name:
            prefixes[prefix] = prefixes.get(prefix, 0) + 1
    numbered = [prefix for prefix, count in prefixes.items() if count > 1]
    if not vectors and len(numbered) == 1 and numbered[0]:
        return select(table, numbered[0])
    if len(learned) > 1 and all(table.columns.get(name) == 1 for name in learned):
        return list(learned)
    lacking = [name for name in learned if table.columns.get(name) != 1]
    if len(learned) > max(len(lacking), 1):  # it has some of them
        raise OptionError(
            "columns must be those that the head has learned, but "
            f"{table.source} lacks {listed(lacking, 3)}"
        )
    raise OptionError(
        "name the column of embeddings, or a prefix or range of columns, with --embedding: "
        + (
            f"columns of vectors in {table.source} are {listed(vectors)}"
            if vectors
            else f"{table.source} has no column of vectors; FIRST:LAST is a range of columns"
        )
    )


def only_label(table: Table, names: Sequence[str], selection: Selection) -> list[str]:
    """Return the label column that is named, or the one of these that is called as labels are.

    Where no labels are needed there may be none.
    """
    if selection.label is not None:
        return [selection.label]
    found = [name for name in names if name.lower() in LABELS]
    if len(found) != 1 and not selection.labelled:
        return []
    left_out = {selection.split, *selection.domains}
    others = [name for name in names if name.lower() not in SPLITS and name not in left_out]
    if selection.only_other and not found and len(others) == 1:
        return others
    if len(found) != 1:
        raise OptionError(
            "name the column to learn with --label: other columns of "
            f"{table.source} are {listed(others, 10)}"
        )
    return found
