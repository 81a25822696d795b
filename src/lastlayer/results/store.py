"""The results file while a study runs: one writer, and one transaction for runs made together.

Everything a study knows is in one SQLite file, ``results.sqlite``. A process killed at any moment
leaves what was saved before, and nothing half written.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from numpy.typing import NDArray

from lastlayer.core.atomic_write import make_folder
from lastlayer.core.files import check_ordinary, say
from lastlayer.core.names import look_up
from lastlayer.errors import BusyError, FileFormatError, LastLayerError, WriteError
from lastlayer.results.blobs import digest as array_digest
from lastlayer.results.blobs import pack
from lastlayer.results.columns import COLUMNS
from lastlayer.results.results_file import WHAT, checksum, create, damaged, verify

FILE = "results.sqlite"
LOCK = "results.lock"

Columns = Mapping[str, str | int | float | None]


@dataclass(frozen=True, eq=False)
class Record:
    """The outcome of a run."""

    digest: str
    columns: Columns  # of the table "run"
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Store:
    """Writes results; made by ``open_store``."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self.path = connection, path

    def describe(self, plan: str, data: Mapping[str, tuple[str, Any]], **about: str) -> None:
        """Store the plan, and for each feature set its fingerprint and what is known about it."""
        with self._transaction() as cursor:
            cursor.executemany(
                "INSERT OR REPLACE INTO study VALUES (?, ?)", [("plan", plan), *about.items()]
            )
            cursor.executemany(
                "INSERT OR REPLACE INTO data (name, fingerprint, about) VALUES (?, ?, ?)",
                [(name, mark, json.dumps(known)) for name, (mark, known) in data.items()],
            )
            seal(cursor, "data", "name")

    def references(self) -> dict[str, tuple[str, dict[str, float]]]:
        """Return of each feature set its fingerprint, and what retraining on it was seen to reach.

        By label, from 0 to 1.
        """
        rows = self._connection.execute("SELECT name, fingerprint, about FROM data")
        return {name: (mark, _references(about)) for name, mark, about in rows}

    def plan(self, wanted: Mapping[str, Columns]) -> dict[str, tuple[int, str]]:
        """Plan runs by digest; runs that are no longer planned are dropped.

        Finished runs stay, whatever the plan. Failed runs are planned again. The column
        "fingerprint" identifies the data and the method that a run is made with. Of each run its
        generation is returned, the number of the plan that it first appeared in, and its state:
        "planned" or "done".
        """
        with self._transaction() as cursor:
            rows = cursor.execute("SELECT * FROM run")
            verify([column[0] for column in rows.description], rows, "run", self.path)
            cursor.execute(
                "UPDATE run SET state = 'planned', message = NULL, checksum = NULL "
                "WHERE state = 'failed'"
            )
            known = dict(cursor.execute("SELECT digest, state FROM run"))
            gone = [(d,) for d, state in known.items() if state == "planned" and d not in wanted]
            cursor.executemany("DELETE FROM run WHERE digest = ?", gone)
            (last,) = cursor.execute("SELECT coalesce(max(generation), 0) FROM run").fetchone()
            new = {digest: columns for digest, columns in wanted.items() if digest not in known}
            for digest, columns in new.items():
                _insert(cursor, {"digest": digest, "generation": last + 1, **columns})
            seal(cursor, "run", "id", "WHERE checksum IS NULL")
            rows = cursor.execute("SELECT digest, generation, state FROM run")
            return {d: (generation, state) for d, generation, state in rows if d in wanted}

    def save(self, records: Sequence[Record]) -> None:
        """Save the outcomes of runs that were made together: all of them, or none."""
        packed = [{name: pack(a) for name, a in record.arrays.items()} for record in records]
        with self._transaction() as cursor:
            for record, arrays in zip(records, packed, strict=True):
                _update(cursor, record, {name: array_digest(a) for name, a in arrays.items()})
                (run,) = cursor.execute(
                    "SELECT id FROM run WHERE digest = ?", (record.digest,)
                ).fetchone()
                rows = [(run, name, *content) for name, content in arrays.items()]
                cursor.executemany("INSERT OR REPLACE INTO array VALUES (?, ?, ?, ?, ?)", rows)
                seal(cursor, "run", "id", "WHERE digest = ?", record.digest)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            cursor.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            ours = isinstance(error, sqlite3.IntegrityError)  # a bug, and no fault of the file
            if isinstance(error, sqlite3.DatabaseError) and not ours:
                raise _trouble(self.path, error) from error
            raise


def _references(about: str) -> dict[str, float]:
    """Take references from what is known of data; what is not one is computed again."""
    try:
        found = json.loads(about)["references"]
        return {str(label): float(value) for label, value in found.items() if 0 <= value <= 1}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


@contextmanager
def open_store(
    folder: Path, wait: bool = False, on_wait: Callable[[], None] = lambda: None
) -> Iterator[Store]:
    """Open the results in a folder for writing; the folder is created if needed.

    While another process writes there it is refused, unless it is to ``wait`` for its end.
    """
    try:
        make_folder(folder)
        lock = FileLock(folder / LOCK)
        with _hold(lock, folder, wait, on_wait), _connect(folder / FILE) as connection:
            yield Store(connection, folder / FILE)
    except OSError as error:
        if isinstance(error, LastLayerError):
            raise
        raise cannot_write(folder, error) from error


@contextmanager
def _hold(lock: FileLock, folder: Path, wait: bool, on_wait: Callable[[], None]) -> Iterator[None]:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise BusyError(
                f"another process is writing to {folder}: wait for it with --wait, or choose "
                "another folder with --out"
            ) from None
        on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _connect(path: Path) -> Iterator[sqlite3.Connection]:
    if path.exists():
        check_ordinary(path, WHAT)
    try:
        connection = sqlite3.connect(path, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise cannot_write(path, error) from error
    try:
        create(connection, path)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        yield connection
        # A file at rest is whole by itself: it can be copied, and read where nobody may write.
        # Where that fails (a reader is there, the disk is full), the journal beside it holds all.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.DatabaseError as error:
        raise _trouble(path, error) from error
    finally:
        connection.close()


def _trouble(path: Path, error: sqlite3.DatabaseError) -> FileFormatError | WriteError:
    """Return the error for a damaged file, or for one that cannot be written."""
    unwritten = isinstance(error, sqlite3.OperationalError) and "decode" not in str(error)
    return cannot_write(path, error) if unwritten else damaged(path, error)


def cannot_write(path: Path, error: Exception) -> WriteError:
    """Return an error saying why results cannot be written, and what to do about it."""
    return WriteError(
        f"cannot write {path}: {say(error)}. What was saved so far is kept: make room, or choose "
        "another folder with --out, and rerun the same command to resume"
    )


def _insert(cursor: sqlite3.Cursor, columns: Columns) -> None:
    names = ", ".join(f'"{_known(name)}"' for name in columns)
    marks = ", ".join("?" * len(columns))
    cursor.execute(f"INSERT INTO run ({names}) VALUES ({marks})", tuple(columns.values()))


def _update(cursor: sqlite3.Cursor, record: Record, arrays: Mapping[str, str]) -> None:
    columns = {**record.columns, "arrays": json.dumps(arrays, sort_keys=True)}
    names = ", ".join(f'"{_known(name)}" = ?' for name in columns)
    values = (*columns.values(), record.digest)
    cursor.execute(f"UPDATE run SET {names} WHERE digest = ?", values)


def _known(name: str) -> str:
    """Return a column's name, checked: SQLite would take a misspelt one in quotes for text."""
    return look_up(name, {column.name: column for column in COLUMNS}, "column").name


def seal(cursor: sqlite3.Cursor, table: str, key: str, which: str = "", *values: str) -> None:
    """Write the checksums of the rows of a table; ``which``: of those that SQL selects."""
    rows = cursor.execute(f"SELECT * FROM {table} {which}", values).fetchall()
    names = [column[0] for column in cursor.description]
    sealed = [(checksum(names, row), row[names.index(key)]) for row in rows]
    cursor.executemany(f"UPDATE {table} SET checksum = ? WHERE {key} = ?", sealed)
