"""Opening results files for reading, wherever they are and whatever is in them."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from lastlayer.errors import BusyError, FileFormatError
from lastlayer.reading import reading
from lastlayer.results.schema import check
from lastlayer.results.store import damaged

WHAT = "a results file of lastlayer"


@contextmanager
def opened(path: Path) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open a results file for reading, with its version; every error inside names the file."""
    with reading(path, WHAT, "restore a copy, or move it away") as place:
        try:
            with closing(_connect(place.resolve())) as connection:
                version = check(connection, path)
                if not version:
                    raise FileFormatError(f"expected {WHAT}, got an empty file: {path}")
                yield connection, version
        except sqlite3.DatabaseError as error:
            raise damaged(path, error) from error


def copy_to_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return a copy of an open file in memory, which can be changed without changing the file."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.backup(copy)
    except BaseException:
        copy.close()
        raise
    return copy


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file where it is, with what a killed writer left in the journal beside it.

    SQLite reads a write-ahead log only where it may write beside it, and undoes an unfinished
    change (by a writer killed while it upgraded the file) in the file itself. Where it cannot, file
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
            return copy_to_memory(copy)


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns
