"""The SQLite file of a store: its settings, which are read back, and its tables.

Every commit is on the disk when it returns (``synchronous=FULL``), and what is deleted is
overwritten (``secure_delete``). Nothing is trusted to be so because it was asked for.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lastlayer.core.files import say
from lastlayer.errors import BusyError, FileFormatError, WriteError

APPLICATION = 0x4C4C4C56  # "LLLV", in the header of every journal
FORMAT = 1  # of a store
PATIENCE = 5.0  # seconds for which somebody who reads the file may keep us from truncating its log
UNWRITTEN = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC,
             sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMSIZE)  # fmt: skip
SCHEMA = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL);
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        change INTEGER NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL, type TEXT NOT NULL,
        width INTEGER NOT NULL, labels TEXT NOT NULL, z BLOB NOT NULL, digest BLOB NOT NULL
    );
    CREATE TABLE request (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE, digest BLOB NOT NULL, answer TEXT NOT NULL
    );
    CREATE TABLE waiting (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE, since REAL NOT NULL, type TEXT NOT NULL, z BLOB NOT NULL,
        digest BLOB NOT NULL, note TEXT, answer TEXT NOT NULL
    );
    CREATE INDEX waiting_row ON waiting (digest);
    PRAGMA application_id = {APPLICATION};
    PRAGMA user_version = {FORMAT};
    COMMIT;
    """


def open_database(path: Path | None) -> sqlite3.Connection:
    """Open the file of a store, or make it; None: in memory, for a live head without a store."""
    place = ":memory:" if path is None else str(path)
    connection = sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=1)
    try:
        _set(connection, "journal_mode", "WAL", "wal" if path else "memory")
        _set(connection, "synchronous", "FULL", 2)
        _set(connection, "secure_delete", "ON", 1)
        _set(connection, "temp_store", "MEMORY", 2)
        _set(connection, "trusted_schema", "OFF", 0)
        _make(connection, path)
    except sqlite3.Error as error:
        connection.close()
        if unwritten := cannot_write(error, place):
            raise unwritten from error
        raise FileFormatError(f"{place} cannot be read as a journal: {say(error)}") from error
    except BaseException:
        connection.close()
        raise
    if path is not None:
        os.chmod(path, 0o600)  # it holds rows
    return connection


def cannot_write(error: sqlite3.Error, what: str) -> WriteError | None:
    """Return what to say where a disk took no more; None: the error is another.

    It is no damage: whoever were told so would give up what was learned.
    """
    if getattr(error, "sqlite_errorcode", None) not in UNWRITTEN:
        return None
    return WriteError(
        f"cannot write {what}: {say(error)}; what it has learned is there: make room, and start "
        "it again"
    )


def _set(connection: sqlite3.Connection, name: str, value: str, expected: object) -> None:
    connection.execute(f"PRAGMA {name} = {value}")
    (found,) = connection.execute(f"PRAGMA {name}").fetchone()
    if found != expected:
        raise WriteError(f"SQLite does not set {name} to {value} here, it stays {found}")


def _make(connection: sqlite3.Connection, path: Path | None) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables and not application:
        connection.executescript(SCHEMA)
    elif application != APPLICATION or version != FORMAT:
        newer = application == APPLICATION and version > FORMAT
        raise FileFormatError(
            f"{path} is no journal of format {FORMAT}, but of {version}"
            + (": upgrade lastlayer" if newer else "")
        )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit the block whole, or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def truncate_log(connection: sqlite3.Connection) -> None:
    """Write the log into the file and cut it to nothing; wait a while for those who read."""
    end = time.monotonic() + PATIENCE
    while True:
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not busy:
            return
        if time.monotonic() > end:
            raise BusyError("somebody reads the journal, so that its log cannot be cut off")
        time.sleep(0.02)
