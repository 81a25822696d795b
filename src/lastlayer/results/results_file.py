"""The results file: its tables, the checksums of their rows, and opening it to be read.

Nothing defined in a file runs before its tables are known to be ours, and to be tables: a view can
run forever, and a trigger can rewrite what is stored.
"""

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from lastlayer.core.files import reading, say
from lastlayer.errors import BusyError, FileFormatError
from lastlayer.results.columns import COLUMNS

WHAT = "a results file of lastlayer"
APPLICATION = 0x4C4C5952  # "LLYR", in the header of every results file
VERSION = 5
SCHEMA = f"""
    CREATE TABLE study (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE data (
        name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, about TEXT NOT NULL, checksum TEXT
    );
    CREATE TABLE run ({", ".join(column.ddl for column in COLUMNS)});
    CREATE TABLE array (
        run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        shape TEXT NOT NULL,
        content BLOB NOT NULL,
        PRIMARY KEY (run, name)
    );
    """
_NOT_SEALED = ("id", "checksum")


def create(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of an empty file, all of them or none; check a file that has some."""
    if is_empty(connection, path):
        connection.executescript(
            f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA application_id = {APPLICATION}; "
            f"PRAGMA user_version = {VERSION}; COMMIT;"
        )


def is_empty(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether a file is empty; refuse one that is not ours, or of another version."""
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        objects = _objects(connection)
    except sqlite3.DatabaseError as error:
        raise FileFormatError(f"{path} is not {WHAT}: {error}") from error
    if objects and application != APPLICATION:
        raise FileFormatError(f"{path} is not {WHAT}, but another program's SQLite file")
    if version > VERSION:
        raise FileFormatError(
            f"{path} was written by a newer lastlayer (its version is {version}, not {VERSION}): "
            "upgrade with: pip install --upgrade lastlayer"
        )
    if not objects:
        return True
    if version < VERSION:
        raise FileFormatError(
            f"{path} was written by lastlayer 0.1 (its version is {version}, not {VERSION}), whose "
            "results are no longer read: move it away, and run the plan again"
        )
    _refuse_strangers(objects, _expected(), path)
    return False


Objects = dict[tuple[str, str], object]  # type and name: what it is made of


@cache
def _expected() -> Objects:
    """Return the objects that a file defines, found by making one."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        fresh.executescript(SCHEMA)
        return _objects(fresh)


def _objects(connection: sqlite3.Connection) -> Objects:
    """Return everything that a file defines: tables with their columns, and any other object."""
    found: Objects = {}
    # Hidden: computed. A virtual table is of kind "table" too, and is none of ours.
    query = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)'
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        is_table = isinstance(sql, str) and sql.upper().startswith("CREATE TABLE")
        columns = connection.execute(query, (name,)).fetchall() if is_table else kind
        found[kind, name] = columns
    return found


def _refuse_strangers(found: Objects, expected: Objects, path: Path) -> None:
    """Refuse triggers, views, and tables or columns that we did not make."""
    odd = [key for key in {**expected, **found} if found.get(key) != expected.get(key)]
    if odd:
        kind, name = odd[0]
        what = "lacks" if odd[0] not in found else "has" if odd[0] not in expected else "changed"
        raise FileFormatError(
            f"{path} was altered by another program: it {what} the {kind} {name!r}, so none of it "
            "was used; restore a copy, or move it away"
        )


def checksum(names: Sequence[str], row: Sequence[Any]) -> str:
    """Return the checksum of a row: of each column that is not null, in the order of the file.

    A column added by a later version is null in existing rows, so their checksums stay valid.
    """
    content = [
        (name, value)
        for name, value in zip(names, row, strict=True)
        if value is not None and name not in _NOT_SEALED
    ]
    return sha256(json.dumps(content).encode()).hexdigest()


def verify(names: Sequence[str], rows: Iterable[Sequence[Any]], what: str, path: Path) -> None:
    """Refuse rows that have changed since they were written."""
    place, first = names.index("checksum"), names.index("digest" if what == "run" else "name")
    for row in rows:
        try:
            intact = row[place] == checksum(names, row)
        except (TypeError, ValueError):  # bytes where there were none
            intact = False
        if not intact:
            raise altered(path, f"{what} {str(row[first])[:16]}")


def altered(path: Path, what: str) -> FileFormatError:
    """Return an error saying that something in a results file has changed since it was written."""
    return FileFormatError(
        f"{path} was altered after it was written: the checksum of {what} is wrong. Restore a copy "
        "of the file, or move it away and rerun the command to start over"
    )


def damaged(path: Path, error: Exception | str) -> FileFormatError:
    """Return an error saying that a results file can no longer be read."""
    why = error if isinstance(error, str) else say(error)
    return FileFormatError(
        f"{path} is damaged: {why}. Move it away, or choose another folder with --out, and rerun "
        "the command to start over"
    )


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a results file for reading, wherever it is; every error inside names the file."""
    with reading(path, WHAT, "restore a copy, or move it away") as place:
        try:
            with closing(_connect(place.resolve())) as connection:
                if is_empty(connection, path):
                    raise FileFormatError(f"{path} is not {WHAT}, but an empty file")
                yield connection
        except sqlite3.DatabaseError as error:
            raise damaged(path, error) from error


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file where it is, with what a killed writer left in the journal beside it.

    SQLite reads a write-ahead log only where it may write beside it, and undoes an unfinished
    change (by a writer killed while it made the file) in the file itself. Where it cannot, file
    and journal are read from copies; without a journal, the file is read where it is.
    """
    writable = os.access(path.parent, os.W_OK)
    for suffix in ("-journal",) if writable else ("-journal", "-wal"):
        journal = path.with_name(f"{path.name}{suffix}")
        with suppress(FileNotFoundError):  # its writer has just ended: the file is whole
            if journal.stat().st_size:
                return _with_journal(path, journal)
    fixed = "" if writable else "&immutable=1"
    return sqlite3.connect(f"{path.as_uri()}?mode=ro{fixed}", uri=True)


def _with_journal(path: Path, journal: Path) -> sqlite3.Connection:
    """Read a file and its journal from copies in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        before = [_state(file) for file in (path, journal)]
        for file in (path, journal):
            shutil.copyfile(file, Path(folder) / file.name)
        if before != [_state(file) for file in (path, journal)]:
            raise BusyError(f"another process is writing to {path}: try again in a moment")
        with closing(sqlite3.connect(Path(folder) / path.name)) as copy:
            memory = sqlite3.connect(":memory:", isolation_level=None)
            try:
                copy.backup(memory)
            except BaseException:
                memory.close()
                raise
            return memory


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns
