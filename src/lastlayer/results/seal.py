"""Checksums of stored rows: written with each row, and checked when it is read."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from lastlayer.errors import FileFormatError
from lastlayer.results.arrays import digest

UNVERIFIED = "unverified"  # in Study.about: what no checksum stood for from the beginning
_NOT_SEALED = ("id", "checksum")


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


def seal_runs(cursor: sqlite3.Cursor, digests: Iterable[str] | None = None) -> None:
    """Write the checksums of these runs; None: of all runs that lack one."""
    if digests is None:
        rows = cursor.execute("SELECT * FROM run WHERE checksum IS NULL").fetchall()
    else:
        query = "SELECT * FROM run WHERE digest = ?"
        rows = [row for d in digests for row in cursor.execute(query, (d,)).fetchall()]
    names = _names(cursor, "run")
    place = names.index("id")
    sealed = [(checksum(names, row), row[place]) for row in rows]
    cursor.executemany("UPDATE run SET checksum = ? WHERE id = ?", sealed)


def seal_data(cursor: sqlite3.Cursor) -> None:
    """Write the checksum of the stored facts about the data."""
    names, rows = _names(cursor, "data"), cursor.execute("SELECT * FROM data").fetchall()
    sealed = [(checksum(names, row), row[names.index("name")]) for row in rows]
    cursor.executemany("UPDATE data SET checksum = ? WHERE name = ?", sealed)


def seal_old(connection: sqlite3.Connection, version: int) -> None:
    """Add checksums to rows from a version that had none, and note in the file that it was done.

    Changes made from then on are noticed; earlier ones cannot be.
    """
    cursor = connection.cursor()
    for run, listed in _array_digests(cursor).items():
        cursor.execute("UPDATE run SET arrays = ? WHERE id = ?", (json.dumps(listed), run))
    seal_runs(cursor)
    seal_data(cursor)
    (runs,) = cursor.execute("SELECT count(*) FROM run WHERE state != 'planned'").fetchone()
    if version and runs:
        cursor.execute("INSERT OR REPLACE INTO study VALUES (?, ?)", (UNVERIFIED, unverified(runs)))


def unverified(runs: int) -> str:
    """Return a sentence saying that some runs cannot be verified."""
    return (
        f"{runs} {'run was' if runs == 1 else 'runs were'} written by a version that kept no "
        "checksums: changes made to them since then would go unnoticed"
    )


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


def _names(cursor: sqlite3.Cursor, table: str) -> list[str]:
    return [column[0] for column in cursor.execute(f"SELECT * FROM {table} LIMIT 0").description]


def _array_digests(cursor: sqlite3.Cursor) -> dict[int, dict[str, str]]:
    """Return the digest of each array by run and name."""
    found: dict[int, dict[str, str]] = {}
    rows = cursor.execute("SELECT run, name, type, shape, content FROM array ORDER BY run, name")
    for run, name, *packed in rows:
        kind, shape, content = packed
        found.setdefault(run, {})[name] = digest((kind, shape, content))
    return found
