"""The shape of the results file: one script for each version, applied in turn."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from lastlayer.errors import FileFormatError

APPLICATION = 0x4C4C5952  # "LLYR", in the header of every results file

MIGRATIONS: Sequence[str] = (
    """
    CREATE TABLE study (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE data (name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, about TEXT NOT NULL);
    CREATE TABLE run (
        id INTEGER PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,
        generation INTEGER NOT NULL,
        state TEXT NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'done', 'failed')),
        features TEXT NOT NULL,
        scenario TEXT NOT NULL,
        label TEXT NOT NULL,
        head TEXT NOT NULL,
        mask TEXT NOT NULL,
        preset TEXT NOT NULL,
        lr REAL,
        "order" INTEGER NOT NULL,
        seed INTEGER NOT NULL,
        subset INTEGER,
        n_classes INTEGER,
        n_tasks INTEGER,
        epochs INTEGER,
        final REAL,
        average REAL,
        forgetting REAL,
        backward_transfer REAL,
        forward_transfer REAL,
        lost INTEGER,
        lost_to_weights INTEGER,
        lost_to_interference INTEGER,
        lost_to_either INTEGER,
        lost_together INTEGER,
        diverged INTEGER,
        message TEXT
    );
    CREATE TABLE array (
        run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        shape TEXT NOT NULL,
        content BLOB NOT NULL,
        PRIMARY KEY (run, name)
    );
    """,
    # Networks trained end to end with replay; of heads on frozen features all of it is NULL.
    """
    ALTER TABLE run ADD COLUMN balance REAL;
    ALTER TABLE run ADD COLUMN per_class INTEGER;
    ALTER TABLE run ADD COLUMN batch_size INTEGER;
    ALTER TABLE run ADD COLUMN optimizer TEXT;
    ALTER TABLE run ADD COLUMN images INTEGER;
    ALTER TABLE run ADD COLUMN lost_share_weights REAL;
    ALTER TABLE run ADD COLUMN lost_share_interference REAL;
    ALTER TABLE run ADD COLUMN lost_share_drift REAL;
    """,
    # What of the data and the method a run was made with; NULL: as what the table "data" says.
    "ALTER TABLE run ADD COLUMN fingerprint TEXT;",
)


def prepare(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[str] = MIGRATIONS
) -> None:
    """Bring a results file to the newest version, or a new one to life: wholly or not at all."""
    version = check(connection, path, migrations)
    if version == len(migrations):
        return
    steps = "".join(migrations[version:])
    connection.executescript(
        f"BEGIN IMMEDIATE; {steps} PRAGMA application_id = {APPLICATION}; "
        f"PRAGMA user_version = {len(migrations)}; COMMIT;"
    )


def check(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[str] = MIGRATIONS
) -> int:
    """Give the version of a results file, 0 for an empty one; refuse what is none of ours."""
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        raise FileFormatError(
            f"expected a results file of lastlayer, got {path}: {error}"
        ) from error
    if tables and application != APPLICATION:
        raise FileFormatError(
            f"expected a results file of lastlayer, got the SQLite file of another program: {path}"
        )
    if version > len(migrations):
        raise FileFormatError(
            f"expected results of version {len(migrations)} or before, got version {version} in "
            f"{path}: a newer lastlayer wrote it; update with: pip install --upgrade lastlayer"
        )
    return int(version) if tables else 0
