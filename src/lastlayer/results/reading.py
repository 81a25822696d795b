"""Reading a study's results, finished or not, as polars tables; nothing is ever written."""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from lastlayer.core.checks import expect, short
from lastlayer.core.files import a_folder, say
from lastlayer.core.names import look_up
from lastlayer.errors import DataError, FileFormatError, MissingFileError
from lastlayer.results.blobs import AT_ONCE, digest, unpack, unpacked_size
from lastlayer.results.columns import COLUMNS, KINDS, POLARS, PYTHON, shown
from lastlayer.results.results_file import altered, damaged, opened, verify
from lastlayer.results.store import FILE

ARRAYS = ("right_by_class", "right_by_task", "n_per_class", "n_per_task", "task_order", "arrived",
          "norm", "bias", "fates", "repairs", "interference", "weight", "data_angles", "images",
          "lost_parts", "drift_norm", "drift_angle", "drift_along")  # fmt: skip


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
                f"references must be shares from 0 to 1 by label, got {short(self.references)}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """The results of a folder; made by ``load_study``.

    ``runs`` has a row for each run of a head: its settings (features, scenario, label, head, mask,
    preset, lr, order, seed, subset, start, gain, batch_size), its state ("planned", "done",
    "failed"), and its outcome: accuracies from 0 to 1, and counts of test samples that were kept,
    lost, gained and never learned, with the lost ones divided by what would repair them.

    ``replay`` has a row for each network trained end to end with replay: its settings (``balance``
    is one), and its outcome: ``images``, the number it was trained on in all epochs, and the shares
    of weights, interference and drift in what was lost, which sum to 1.

    Every row and every array is checked against its checksum when it is read.
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

        It is one of ``ARRAYS``, or of ``array_names()``; ``runs`` are rows of ``runs`` or
        ``replay``, all if not given.
        """
        expect(name, str, "name", "the name of an array")
        expect(runs, (pl.DataFrame, type(None)), "runs", "rows of Study.runs or Study.replay")
        look_up(name, dict.fromkeys((*ARRAYS, *self.array_names())), "array")
        known = (*self.runs["digest"], *self.replay["digest"])
        wanted = set(known if runs is None else runs["digest"])
        with opened(self.path) as connection:
            return dict(_unpacked(_packed(connection, name, wanted), name, self.path))

    def array_names(self) -> list[str]:
        """Return the names of the stored arrays."""
        with opened(self.path) as connection:
            listed = connection.execute("SELECT arrays FROM run WHERE arrays IS NOT NULL")
            return sorted({str(name) for (names,) in listed for name in json.loads(names)})


def load_study(folder: str | os.PathLike[str]) -> Study:
    """Read the results in a folder that ``lastlayer run`` made.

    >>> load_study("nowhere")
    Traceback (most recent call last):
    ...
    lastlayer.errors.MissingFileError: no results in nowhere: there is no results.sqlite; \
make it with: lastlayer run PLAN --out nowhere
    """
    path = a_folder(folder) / FILE
    if not path.exists():
        raise MissingFileError(
            f"no results in {folder}: there is no {FILE}; make it with: lastlayer run PLAN --out "
            f"{folder}"
        )
    with opened(path) as connection:
        about = {str(name): str(value) for name, value in connection.execute("SELECT * FROM study")}
        data = dict(_data(connection, path))
        runs = _of_now(_runs(connection, path), data)
    heads, networks = (runs.filter(kind=kind).select(shown(kind)) for kind in KINDS)
    return Study(path, about, data, heads, networks)


def _data(connection: sqlite3.Connection, path: Path) -> Iterator[tuple[str, Data]]:
    names, rows = _all_of(connection, "data")
    verify(names, rows, "data", path)
    for row in rows:
        name, fingerprint, about, *_ = row
        try:
            yield name, Data(fingerprint, **json.loads(about))
        except (TypeError, ValueError, RecursionError) as error:
            raise damaged(path, f"what is known of the data {name!r}: {say(error)}") from error


def _runs(connection: sqlite3.Connection, path: Path) -> pl.DataFrame:
    """Read the table of runs, each row and each type in it checked."""
    names, rows = _all_of(connection, "run")
    verify(names, rows, "run", path)
    types = {column.name: column.type for column in COLUMNS}
    for name, values in zip(names, zip(*rows, strict=True), strict=False):
        odd = set(map(type, values)) - {*PYTHON[types[name]], type(None)}
        if odd:
            raise damaged(path, f"column {name!r} holds {', '.join(t.__name__ for t in odd)}")
    schema = {name: POLARS[types[name]] for name in names}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _all_of(connection: sqlite3.Connection, table: str) -> tuple[list[str], list[Sequence[Any]]]:
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
    return [column[0] for column in cursor.description], cursor.fetchall()


def _of_now(runs: pl.DataFrame, data: Mapping[str, Data]) -> pl.DataFrame:
    """Leave out the runs whose data or method have changed since."""
    marks = {name: known.fingerprint for name, known in data.items()}
    now = pl.col("features").replace_strict(marks, default=None, return_dtype=pl.String)
    return runs.filter((pl.col("fingerprint") == now).fill_null(True))


def _packed(
    connection: sqlite3.Connection, name: str, wanted: set[str]
) -> Iterator[tuple[str, str | None, str, str, bytes]]:
    """Yield each run's digest, the digests of its arrays, and one array as it is stored."""
    # By the rows themselves: they have a checksum, an index has none, and may be damaged.
    query = (
        "SELECT digest, run.arrays, type, shape, content FROM run NOT INDEXED LEFT JOIN array "
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
        known = json.loads(listed).get(name) if listed else None
        if known != (digest((kind, shape, content)) if isinstance(content, bytes) else None):
            raise altered(path, f"the array '{name}' of run {run[:16]}")
        if known is None:
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
