"""Reading a study's results, finished or not, as polars tables; nothing is ever written."""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from lastlayer.arguments import expect, short
from lastlayer.catalogue import CODES, HEADS
from lastlayer.errors import DataError, FileFormatError, MissingFileError
from lastlayer.names import look_up
from lastlayer.reading import a_folder, say
from lastlayer.results.arrays import AT_ONCE, digest, unpack, unpacked_size
from lastlayer.results.columns import COLUMNS, KINDS, POLARS, PYTHON, shown
from lastlayer.results.opening import copy_to_memory, opened
from lastlayer.results.schema import CHECKED, MIGRATIONS, prepare
from lastlayer.results.seal import UNVERIFIED, altered, unverified, verify
from lastlayer.results.store import FILE, damaged

ARRAYS = ("right_by_class", "right_by_task", "n_per_class", "n_per_task", "task_order", "arrived",
          "norm", "bias", "fates", "repairs", "interference", "weight", "data_angles", "images",
          "lost_parts", "drift_norm", "drift_angle", "drift_along")  # fmt: skip
FORMERLY = {"repairs": "causes"}  # the name of an array in files of before


@dataclass(frozen=True)
class Data:
    """What is known about a feature set."""

    fingerprint: str  # of its content, and of the method that it was used with
    names: Mapping[str, list[str]]  # per label column, the name of each class
    origin: Mapping[str, str]
    n_train: int
    n_test: int
    in_features: int
    references: Mapping[str, float] = field(default_factory=dict)
    """What a softmax regression reaches that is retrained on everything, by label, from 0 to 1."""

    def __post_init__(self) -> None:
        """Refuse references that are not shares by label."""
        values = self.references.values() if isinstance(self.references, Mapping) else [None]
        if not all(isinstance(value, float | int) and 0 <= value <= 1 for value in values):
            raise DataError(
                f"expected references as shares from 0 to 1 by label, got {short(self.references)}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """The results of a folder; made by ``load_study``.

    ``runs`` has a row for each run of a head: its settings (features, scenario, label, head, mask,
    preset, lr, order, seed, subset, start, gain, batch_size), its state ("planned", "done",
    "failed"), and its outcome: accuracies from 0 to 1, and counts of test samples that were kept,
    lost, gained and never learned, with the lost ones divided by what would repair them.

    ``replay`` has a row for each network trained end to end with replay: its settings (``balance``
    is one), and its outcome: ``images``, the number it was trained on in all epochs, and the parts
    of weights, interference and drift in what was lost, which sum to 1.

    Every row and every array is checked against its checksum when it is read. ``about`` has the
    key "unverified" where some of them were written by a version without checksums.
    """

    path: Path
    about: Mapping[str, str]  # the plan, the version that ran it, how much of it there is
    data: Mapping[str, Data]
    runs: pl.DataFrame
    replay: pl.DataFrame

    @property
    def done(self) -> pl.DataFrame:
        """The runs that are finished."""
        return self.runs.filter(state="done")

    def __repr__(self) -> str:
        networks = f", {self.replay.height} networks" if self.replay.height else ""
        return f"Study({self.path.parent}: {self.done.height} of {self.runs.height} runs{networks})"

    def arrays(self, name: str, runs: pl.DataFrame | None = None) -> dict[str, NDArray[Any]]:
        """Return an array of each run by the run's digest; runs that have none are left out.

        Args:
            name: one of ``ARRAYS``, or of ``array_names()``.
            runs: rows of ``runs`` or ``replay``; None: all.
        """
        expect(name, str, "name", "the name of an array")
        expect(runs, (pl.DataFrame, type(None)), "runs", "rows of Study.runs or Study.replay")
        look_up(name, dict.fromkeys((*ARRAYS, *self.array_names())), "array")
        known = (*self.runs["digest"], *self.replay["digest"])
        wanted = set(known if runs is None else runs["digest"])
        with opened(self.path) as (connection, version):
            rows = _packed(connection, version, name, wanted)
            found = dict(_unpacked(rows, name, self.path))
            if name in FORMERLY:
                old = _packed(connection, version, FORMERLY[name], wanted - found.keys())
                found |= _unpacked(old, FORMERLY[name], self.path)
            return found

    def array_names(self) -> list[str]:
        """Return the names of the stored arrays."""
        with opened(self.path) as (connection, version):
            if version < CHECKED:
                rows = connection.execute("SELECT DISTINCT name FROM array ORDER BY name")
                return [str(name) for (name,) in rows]
            listed = connection.execute("SELECT arrays FROM run WHERE arrays IS NOT NULL")
            return sorted({str(name) for (names,) in listed for name in json.loads(names)})


def load_study(folder: str | os.PathLike[str]) -> Study:
    """Read the results in a folder that ``lastlayer run`` made.

    >>> load_study("nowhere")
    Traceback (most recent call last):
    ...
    lastlayer.errors.MissingFileError: no results in nowhere: expected a folder with \
results.sqlite, made by: lastlayer run PLAN --out nowhere
    """
    path = a_folder(folder) / FILE
    if not path.exists():
        raise MissingFileError(
            f"no results in {folder}: expected a folder with {FILE}, made by: lastlayer run PLAN "
            f"--out {folder}"
        )
    with opened(path) as (connection, version):
        if version == len(MIGRATIONS):
            return _read(connection, version, path)
        with closing(copy_to_memory(connection)) as newest:  # the file stays as it is
            prepare(newest, path)
            return _read(newest, version, path)


def _read(connection: sqlite3.Connection, version: int, path: Path) -> Study:
    """Read all but the arrays from a file of the newest version; ``version`` is what it was."""
    about = {str(name): str(value) for name, value in connection.execute("SELECT * FROM study")}
    data = dict(_data(connection, version, path))
    runs = _runs(connection, version, path)
    if version < CHECKED:
        about[UNVERIFIED] = unverified(runs.filter(pl.col("state") != "planned").height)
    runs = _of_now(runs, data)
    heads, networks = (runs.filter(kind=kind).select(shown(kind)) for kind in KINDS)
    return Study(path, about, data, heads, networks)


def _data(connection: sqlite3.Connection, version: int, path: Path) -> Iterator[tuple[str, Data]]:
    names, rows = _all_of(connection, "data")
    if version >= CHECKED:
        verify(names, rows, "data", path)
    for row in rows:
        name, fingerprint, about, *_ = row
        try:
            yield name, Data(fingerprint, **json.loads(about))
        except (TypeError, ValueError, RecursionError) as error:
            raise damaged(path, f"what is known of the data {name!r}: {say(error)}") from error


def _runs(connection: sqlite3.Connection, version: int, path: Path) -> pl.DataFrame:
    """Read the table of runs, each row and each type in it checked."""
    names, rows = _all_of(connection, "run")
    if version >= CHECKED:
        verify(names, rows, "run", path)
    types = {column.name: column.type for column in COLUMNS}
    for name, values in zip(names, zip(*rows, strict=True), strict=False):
        odd = set(map(type, values)) - {*PYTHON[types[name]], type(None)}
        if odd:
            raise damaged(path, f"column {name!r} holds {', '.join(t.__name__ for t in odd)}")
    schema = {name: POLARS[types[name]] for name in names}
    return _in_words_of_now(pl.DataFrame(rows, schema=schema, orient="row"))


def _in_words_of_now(runs: pl.DataFrame) -> pl.DataFrame:
    """Fill the columns that earlier versions named differently or did not have."""
    renamed = [
        pl.coalesce(column.name, column.formerly).alias(column.name)
        for column in COLUMNS
        if column.formerly
    ]
    kinds = runs.select("head", "mask", "preset").unique().rows()
    known = [(*kind, *_before_choice(*kind)) for kind in kinds if kind[0] in HEADS]
    schema = dict.fromkeys(("head", "mask", "preset", "start", "gain"), pl.String)
    before = pl.DataFrame(known, {**schema, "batch_size": pl.Int64}, orient="row")
    found = runs.join(
        before, on=["head", "mask", "preset"], how="left", suffix="_before", maintain_order="left"
    )
    untold = (pl.col("kind") == "head") & pl.col("batch_size").is_null()
    filled = [
        pl.when(untold).then(f"{name}_before").otherwise(name).alias(name)
        for name in ("start", "gain", "batch_size")
    ]
    return found.with_columns(*renamed, *filled).select(runs.columns)


def _before_choice(head: str, mask: str, preset: str) -> tuple[str | None, str | None, int | None]:
    """Return the start, gain and batch size of runs made before these could be chosen."""
    card = HEADS[head]
    start = card.start_before_choice(mask) if preset == "paper" else None
    return start, card.gain(None), CODES["may"].batch_size if card.by_gradient else None


def _all_of(connection: sqlite3.Connection, table: str) -> tuple[list[str], list[Sequence[Any]]]:
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
    return [column[0] for column in cursor.description], cursor.fetchall()


def _of_now(runs: pl.DataFrame, data: Mapping[str, Data]) -> pl.DataFrame:
    """Leave out the runs whose data or method have changed since."""
    marks = {name: known.fingerprint for name, known in data.items()}
    now = pl.col("features").replace_strict(marks, default=None, return_dtype=pl.String)
    return runs.filter((pl.col("fingerprint") == now).fill_null(True))


def _packed(
    connection: sqlite3.Connection, version: int, name: str, wanted: set[str]
) -> Iterator[tuple[str, str | None, str, str, bytes]]:
    """Yield each run's digest, the digests of its arrays, and one array as it is stored."""
    listed = "run.arrays" if version >= CHECKED else "NULL"
    # By the rows themselves: they have a checksum, an index has none, and may be damaged.
    query = (
        f"SELECT digest, {listed}, type, shape, content FROM run NOT INDEXED LEFT JOIN array "
        "ON array.run = run.id AND array.name = ?"
    )
    values: tuple[str, ...] = (name,)
    if len(wanted) <= 500:
        query += f" WHERE digest IN ({', '.join('?' * len(wanted))})"
        values = (name, *wanted)
    yield from (row for row in connection.execute(query, values) if row[0] in wanted)


def _unpacked(
    rows: Iterator[tuple[str, str | None, str, str, bytes]], name: str, path: Path
) -> Iterator[tuple[str, NDArray[Any]]]:
    size = 0
    for run, listed, kind, shape, content in rows:
        there = content is not None
        known = json.loads(listed).get(name) if listed else None
        if listed and known != (digest((kind, shape, content)) if there else None):
            raise altered(path, f"the array '{name}' of run {run[:16]}")
        if not there:
            continue
        try:
            size += unpacked_size(kind, shape)
            if size > AT_ONCE:
                raise FileFormatError(
                    f"the arrays '{name}' of {path} take more than {AT_ONCE >> 30} GiB: ask for "
                    "fewer runs at a time"
                )
            array = unpack(kind, shape, content)
        except FileFormatError:
            raise
        except Exception as error:  # zlib, JSON and NumPy have many
            raise damaged(path, f"the array '{name}' of run {run[:16]}: {say(error)}") from error
        yield run, array
