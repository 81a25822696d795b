"""Reading a study's results, finished or not, as polars tables; nothing is ever written."""

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from lastlayer.errors import FileFormatError, MissingFileError
from lastlayer.names import look_up
from lastlayer.results.arrays import unpack
from lastlayer.results.schema import check
from lastlayer.results.store import FILE, damaged

TEXT = ("digest", "state", "features", "scenario", "label", "head", "mask", "preset",
        "message", "fingerprint")  # fmt: skip
REAL = ("lr", "final", "average", "forgetting", "backward_transfer", "forward_transfer")
ARRAYS = ("right_by_class", "right_by_task", "n_per_class", "n_per_task", "task_order", "norm",
          "bias", "causes", "weight", "data_angles", "images", "lost_parts", "drift_norm",
          "drift_angle", "drift_along")  # fmt: skip
HIDDEN = ("id", "generation", "fingerprint")
# What only networks trained end to end have, and what they never have.
OF_REPLAY: dict[str, type[pl.DataType]] = {
    "balance": pl.Float64,
    "per_class": pl.Int64,
    "batch_size": pl.Int64,
    "optimizer": pl.String,
    "images": pl.Int64,
    "lost_share_weights": pl.Float64,
    "lost_share_interference": pl.Float64,
    "lost_share_drift": pl.Float64,
}
NOT_OF_REPLAY = ("preset", "subset", "forward_transfer", "lost_to_weights", "lost_to_interference",
                 "lost_to_either", "lost_together")  # fmt: skip


@dataclass(frozen=True)
class Data:
    """What is known of a feature set."""

    fingerprint: str  # of its content, and of the method that it was used with
    names: Mapping[str, list[str]]  # per label column, the name of each class
    origin: Mapping[str, str]
    n_train: int
    n_test: int
    in_features: int


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """The results of a folder; made by ``load``.

    ``runs`` has a row for each run: what it is (features, scenario, label, head, mask,
    preset, lr, order, seed, subset), its state ("planned", "done", "failed"), and what came of it:
    accuracies from 0 to 1, and counts of lost test samples by cause.

    ``replay`` has a row for each network trained end to end with replay: what it is, ``balance``
    among it, and what came of it: ``images``, those it was trained on in all epochs, and the parts
    of weights, interference and drift in what was lost, which sum to 1.
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
        """Give an array of each run by the run's digest; runs that have none are left out.

        Args:
            name: one of ``ARRAYS``, or of ``array_names()``.
            runs: rows of ``runs`` or ``replay``; None: all.
        """
        look_up(name, dict.fromkeys((*ARRAYS, *self.array_names())), "array")
        known = (*self.runs["digest"], *self.replay["digest"])
        wanted = set(known if runs is None else runs["digest"])
        if len(wanted) <= 500:
            marks = ", ".join("?" * len(wanted))
            query, values = f"{_ARRAYS} AND digest IN ({marks})", (name, *wanted)
        else:
            query, values = _ARRAYS, (name,)
        with closing(_connect(self.path)) as connection:
            try:
                return {
                    digest: unpack(*packed)
                    for digest, *packed in connection.execute(query, values)
                    if digest in wanted
                }
            except (sqlite3.DatabaseError, zlib.error, ValueError) as error:
                raise damaged(self.path, error) from error

    def array_names(self) -> list[str]:
        """Name the arrays that there are."""
        with closing(_connect(self.path)) as connection:
            rows = connection.execute("SELECT DISTINCT name FROM array ORDER BY name")
            return [name for (name,) in rows]


_ARRAYS = (
    "SELECT digest, type, shape, content FROM array JOIN run ON run.id = array.run WHERE name = ?"
)


def load(folder: str | os.PathLike[str]) -> Study:
    """Read the results in a folder that ``lastlayer run`` made.

    >>> load("nowhere")
    Traceback (most recent call last):
    ...
    lastlayer.errors.MissingFileError: no results in nowhere: expected a folder with \
results.sqlite, made by: lastlayer run PLAN --out nowhere
    """
    path = Path(folder) / FILE
    if not path.is_file():
        raise MissingFileError(
            f"no results in {folder}: expected a folder with {FILE}, made by: lastlayer run PLAN "
            f"--out {folder}"
        )
    with closing(_connect(path)) as connection:
        if not check(connection, path):
            raise FileFormatError(f"expected a results file of lastlayer, got an empty one: {path}")
        try:
            about = dict(connection.execute("SELECT name, value FROM study"))
            data = dict(_data(connection))
            runs = _runs(connection, data)
        except sqlite3.DatabaseError as error:
            raise damaged(path, error) from error
    frozen, replay = pl.col("balance").is_null(), pl.col("balance").is_not_null()
    return Study(
        path,
        about,
        data,
        runs.filter(frozen).drop(*OF_REPLAY),
        runs.filter(replay).drop(*NOT_OF_REPLAY),
    )


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file for reading; where nobody may write, it is taken as it lies."""
    writable = os.access(path.parent, os.W_OK)
    uri = f"{path.resolve().as_uri()}?mode=ro{'' if writable else '&immutable=1'}"
    return sqlite3.connect(uri, uri=True)


def _data(connection: sqlite3.Connection) -> Iterator[tuple[str, Data]]:
    for name, fingerprint, about in connection.execute("SELECT name, fingerprint, about FROM data"):
        yield name, Data(fingerprint, **json.loads(about))


def _runs(connection: sqlite3.Connection, data: Mapping[str, Data]) -> pl.DataFrame:
    """Read all runs but those of data, or of a method, that have changed since."""
    cursor = connection.execute("SELECT * FROM run ORDER BY id")
    names = [column[0] for column in cursor.description]
    types: dict[str, type[pl.DataType]]
    types = {n: pl.String if n in TEXT else pl.Float64 if n in REAL else pl.Int64 for n in names}
    types |= {name: OF_REPLAY[name] for name in names if name in OF_REPLAY}
    runs = pl.DataFrame(cursor.fetchall(), schema=types, orient="row")
    if "fingerprint" in names:
        now = pl.col("features").replace_strict(
            {name: known.fingerprint for name, known in data.items()},
            default=None,
            return_dtype=pl.String,
        )
        runs = runs.filter((pl.col("fingerprint") == now).fill_null(True))
    runs = runs.drop(HIDDEN, strict=False)
    # A file that was written before replay came lacks its columns; it is read as it lies.
    absent = {name: kind for name, kind in OF_REPLAY.items() if name not in names}
    return runs.with_columns(pl.lit(None, dtype=kind).alias(n) for n, kind in absent.items())
