"""The shape of the results file: one script for each version, applied in turn."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from lastlayer.errors import FileFormatError
from lastlayer.results.columns import COLUMNS

APPLICATION = 0x4C4C5952  # "LLYR", in the header of every results file

_FIRST = """
    CREATE TABLE study (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE data (name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, about TEXT NOT NULL);
    CREATE TABLE run ({columns});
    CREATE TABLE array (
        run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        shape TEXT NOT NULL,
        content BLOB NOT NULL,
        PRIMARY KEY (run, name)
    );
    """
_TELL_KINDS_APART = "UPDATE run SET kind = 'network' WHERE balance IS NOT NULL;"
_SEAL_DATA = "ALTER TABLE data ADD COLUMN checksum TEXT;"


def _columns(version: int) -> str:
    return ", ".join(column.ddl for column in COLUMNS if column.since == version)


def _more_columns(version: int) -> str:
    new = (column for column in COLUMNS if column.since == version)
    return " ".join(f"ALTER TABLE run ADD COLUMN {column.ddl};" for column in new)


MIGRATIONS: Sequence[str] = (
    _FIRST.format(columns=_columns(1)),
    _more_columns(2),  # networks trained end to end with replay
    _more_columns(3),  # what of the data and the method a run was made with
    _more_columns(4) + _TELL_KINDS_APART + _SEAL_DATA,  # kinds of run, and checksums
    _more_columns(5),  # starts and gains, and what would repair a lost sample
)
CHECKED = 4  # the version that brought checksums


def prepare(
    connection: sqlite3.Connection,
    path: Path,
    migrations: Sequence[str] = MIGRATIONS,
    finish: Callable[[sqlite3.Connection, int], None] = lambda connection, version: None,
) -> None:
    """Create a results file, or upgrade one to the newest version: completely or not at all.

    Args:
        connection: to the file.
        path: of the file, for messages.
        migrations: the scripts.
        finish: called with the connection and the old version, before the change is committed.
    """
    version = check(connection, path, migrations)
    if version == len(migrations):
        return
    steps = "".join(migrations[version:])
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE; {steps} PRAGMA application_id = {APPLICATION}; "
            f"PRAGMA user_version = {len(migrations)};"
        )
        finish(connection, version)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[str] = MIGRATIONS
) -> int:
    """Return the version of a results file, 0 for an empty one; refuse files that are not ours.

    Nothing defined in the file runs before its tables are known to be ours, and to be tables: a
    view can run forever, and a trigger can rewrite what is stored.
    """
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        objects = _objects(connection)
    except sqlite3.DatabaseError as error:
        raise FileFormatError(
            f"expected a results file of lastlayer, got {path}: {error}"
        ) from error
    if objects and application != APPLICATION:
        raise FileFormatError(
            f"expected a results file of lastlayer, got another program's SQLite file: {path}"
        )
    if version > len(migrations):
        raise FileFormatError(
            f"expected results of version {len(migrations)} or earlier, got version {version} in "
            f"{path}: a newer lastlayer wrote it; upgrade with: pip install --upgrade lastlayer"
        )
    if not objects:
        return 0
    if version < 1:
        raise FileFormatError(f"expected results of version 1 or later, got {version} in {path}")
    _refuse_strangers(objects, _expected(tuple(migrations[:version])), path)
    return int(version)


Objects = dict[tuple[str, str], object]  # type and name: what it is made of


@cache
def _expected(migrations: tuple[str, ...]) -> Objects:
    """Return the objects that a file of a version defines, found by making one."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        fresh.executescript("".join(migrations))
        return _objects(fresh)


def _objects(connection: sqlite3.Connection) -> Objects:
    """Return everything that a file defines: tables with their columns, and any other object."""
    listed = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {
        (kind, name): _columns_of(connection, name) if _is_table(kind, sql) else kind
        for kind, name, sql in listed
    }


def _is_table(kind: str, sql: object) -> bool:
    return kind == "table" and isinstance(sql, str) and sql.upper().startswith("CREATE TABLE")


def _columns_of(connection: sqlite3.Connection, table: str) -> object:
    """Return name, type, NOT NULL, place in the key, and whether it is computed, of each column."""
    query = 'SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)'
    return connection.execute(query, (table,)).fetchall()


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
