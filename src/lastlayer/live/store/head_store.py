"""What a live head keeps on disk: its file, a journal of what came after, names, rows that wait.

A folder for each head::

    head.safetensors   the head, with the change it goes through
    journal.sqlite     changes since, names of requests, rows that wait for a label
    lock               held by the one service that works here
"""

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from lastlayer.core.atomic_write import make_folder
from lastlayer.core.files import say
from lastlayer.errors import BusyError, FileFormatError, LastLayerError, TakenError, WriteError
from lastlayer.live.store.database import cannot_write, open_database, transaction, truncate_log
from lastlayer.live.store.entry import LABEL, LEARN, Entry, Rows

NAMES = 1_000_000  # of requests that are remembered
HEAD, JOURNAL, LOCK = "head.safetensors", "journal.sqlite", "lock"
ALL = ".lock"  # held by the service of all heads in a folder of stores; no head has such a name


class Waiting(NamedTuple):
    """A row that was answered and waits for its label."""

    id: str
    since: float
    z: Rows
    note: str | None
    answer: dict[str, Any]


class Kept(NamedTuple):
    """An entry of the journal: those with one ``step`` were applied as one batch."""

    change: int
    step: int
    entry: Entry


@dataclass
class Group:
    """What one transaction writes: changes with their answers, and rows that wait."""

    kept: list[Kept] = field(default_factory=list)
    answers: list[tuple[str, bytes, dict[str, Any]]] = field(default_factory=list)
    waiting: list[tuple[Entry, bytes]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # ids that no longer wait
    facts: dict[str, Any] = field(default_factory=dict)


class Store:
    """A store, open for its one service; without a folder in memory, for who need not survive.

    The clock gives the time in seconds; the store's own never goes back.
    """

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock, self._lock = folder, clock, None
        if folder is not None:
            self._lock = locked(folder)
            for leftover in _leftovers(folder):
                leftover.unlink()
        try:
            self._db = open_database(folder and folder / JOURNAL)
            self.secret = self._secret()
            if folder is not None:  # what was deleted before a kill is erased now
                truncate_log(self._db)
            ((latest,),) = self._select("SELECT max(since) FROM waiting")
        except BaseException as error:
            if self._lock is not None:
                self._lock.release()
            if isinstance(error, sqlite3.Error):
                raise self._damaged(error) from error
            raise
        self._latest = float(latest or 0.0)

    @property
    def head(self) -> Path:
        """The file of the head."""
        assert self.folder is not None
        return self.folder / HEAD

    def now(self) -> float:
        """Return the time, which never goes back."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    @property
    def behind(self) -> float:
        """The seconds by which the clock has gone back."""
        return max(self._latest - self._clock(), 0.0)

    def close(self) -> None:
        """Close it, for another service to open."""
        self._db.close()
        if self._lock is not None:
            self._lock.release()

    def _secret(self) -> bytes:
        with transaction(self._db):
            more = (("secret", secrets.token_bytes(32)),)
            self._db.executemany("INSERT OR IGNORE INTO fact VALUES (?, ?)", more)
        ((found,),) = self._select("SELECT value FROM fact WHERE name = 'secret'")
        return bytes(found)

    def fact(self, name: str) -> Any:
        """Return what was noted under a name; None: nothing."""
        found = next(self._select("SELECT value FROM fact WHERE name = ?", name), None)
        return None if found is None else json.loads(found[0])

    def note(self, **facts: Any) -> None:
        """Note facts, as a transaction of its own."""
        self.commit(Group(facts=facts))

    # What is written.

    def commit(self, group: Group) -> None:
        """Write a group whole, or not at all; when it returns it is on the disk."""
        try:
            with transaction(self._db):
                self._write(group)
        except (sqlite3.Error, OSError) as error:
            raise WriteError(f"cannot write the journal: {say(error)}") from error

    def _write(self, group: Group) -> None:
        db = self._db
        entries = "INSERT INTO entry (change, step, kind, type, width, labels, z, digest)"
        db.executemany(f"{entries} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(self._row, group.kept))
        db.executemany(
            "INSERT INTO request (name, digest, answer) VALUES (?, ?, ?)",
            [(name, digest, json.dumps(answer)) for name, digest, answer in group.answers],
        )
        if group.answers:
            (last,) = db.execute("SELECT max(number) FROM request").fetchone()
            db.execute("DELETE FROM request WHERE number <= ?", (last - NAMES,))
        # First: an id that was dropped may wait again in the same group.
        db.executemany("DELETE FROM waiting WHERE id = ?", [(name,) for name in group.done])
        db.executemany(
            "INSERT INTO waiting (id, since, type, z, digest, note, answer)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (e.request, self.now(), e.z.dtype.str, e.z.tobytes(), digest, e.note, e.answer)
                for e, digest in group.waiting
            ],
        )
        db.executemany(
            "INSERT OR REPLACE INTO fact VALUES (?, ?)",
            [(name, json.dumps(value)) for name, value in group.facts.items()],
        )

    def _row(self, kept: Kept) -> tuple[Any, ...]:
        e = kept.entry
        kind = LEARN if e.kind == LABEL else e.kind
        about = (kept.change, kept.step, kind, e.z.dtype.str, e.z.shape[1])
        labels, z = json.dumps([e.labels, e.to]), e.z.tobytes()
        return (*about, labels, z, self._seal(about, labels, z))

    def _seal(self, about: tuple[Any, ...], labels: str, z: bytes) -> bytes:
        sealed = blake2b(json.dumps([*about, labels]).encode(), key=self.secret, digest_size=16)
        sealed.update(z)
        return sealed.digest()

    # What is read.

    def journal(self, after: int) -> Iterator[list[Kept]]:
        """Yield what came after a change, in its order: entries of one step together."""
        columns = "change, step, kind, type, width, labels, z, digest"
        rows = self._select(f"SELECT {columns} FROM entry WHERE change > ? ORDER BY number", after)
        together: list[Kept] = []
        for *about, labels, z, digest in rows:
            if self._seal(tuple(about), labels, z) != digest:
                raise FileFormatError(f"the journal was altered at change {about[0]}")
            change, step, kind, dtype, width = about
            own, to = map(tuple, json.loads(labels))
            array = np.frombuffer(z, dtype=dtype).reshape(-1, width)
            kept = Kept(change, step, Entry(kind, array, own, to))
            if together and together[-1].step != step:
                yield together
                together = []
            together.append(kept)
        if together:
            yield together

    def forgets(self) -> bool:
        """Return whether rows are in the journal that were to be erased."""
        return any(self._select("SELECT 1 FROM entry WHERE kind = 'forget' LIMIT 1"))

    def answered(self, name: str, digest: bytes) -> dict[str, Any] | None:
        """Return what a request was answered; None: there was none of this name."""
        found = next(self._select("SELECT digest, answer FROM request WHERE name = ?", name), None)
        if found is None:
            return None
        check_same(name, found[0], digest)
        return dict(json.loads(found[1]))

    def waiting(self, name: str) -> tuple[Waiting, bytes] | None:
        """Return the row that waits under an id, with its digest."""
        return next(self._waiting("WHERE id = ?", name), None)

    def copies(self, digests: Sequence[bytes]) -> list[str]:
        """Return the ids of rows that wait and have one of some digests."""
        if not any(self._select("SELECT 1 FROM waiting LIMIT 1")):
            return []
        same = "SELECT id FROM waiting WHERE digest = ?"
        return [name for digest in digests for (name,) in self._select(same, digest)]

    def all_waiting(self) -> Iterator[Waiting]:
        """Yield all rows that wait, the oldest first."""
        return (row for row, _ in self._waiting("ORDER BY number"))

    def _waiting(self, where: str, *values: Any) -> Iterator[tuple[Waiting, bytes]]:
        query = f"SELECT id, since, type, z, note, answer, digest FROM waiting {where}"
        for name, since, dtype, z, note, answer, digest in self._select(query, *values):
            row = np.frombuffer(z, dtype=dtype).reshape(1, -1)
            yield Waiting(name, since, row, note, json.loads(answer)), digest

    def _select(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        try:
            yield from iter(self._db.execute(query, values).fetchone, None)
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _damaged(self, error: sqlite3.Error) -> LastLayerError:
        if unwritten := cannot_write(error, f"the journal of {self.folder}"):
            return unwritten
        return FileFormatError(
            f"the journal of {self.folder} is damaged ({say(error)}): restore a backup, or begin a "
            f"new store with its {HEAD}, which has learned through the last checkpoint"
        )

    # What is erased.

    def erase(self, through: int) -> None:
        """Erase what the head's file holds, so that its bytes are in no file of the store."""
        try:
            with transaction(self._db):
                self._db.execute("DELETE FROM entry WHERE change <= ?", (through,))
            if self.folder is not None:
                truncate_log(self._db)
        except sqlite3.Error as error:
            raise WriteError(f"cannot erase the journal: {say(error)}") from error

    @property
    def bytes(self) -> int:
        """How many bytes its files take."""
        if self.folder is None:
            return 0
        total = 0
        for file in os.scandir(self.folder):
            with suppress(OSError):  # it went meanwhile
                total += file.stat().st_size
        return total


def check_same(name: str, before: bytes, now: bytes) -> None:
    """Refuse a name that was given to another request."""
    if not secrets.compare_digest(before, now):
        raise TakenError(f"'{name[:200]}' names another request: a request needs a name of its own")


def _leftovers(folder: Path) -> list[Path]:
    """Return what a write that was killed has left: ours, and the one that safetensors makes.

    It may have rows that were forgotten since.
    """
    return [*folder.glob(".*.safetensors.*"), *folder.glob(".tmp??????")]


def locked(folder: Path, name: str = LOCK) -> FileLock:
    """Return the lock of a folder, held; refuse one at which another service is at work."""
    try:
        make_folder(folder, 0o700)
        lock = FileLock(folder / name)
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"another service is at work on {folder}: stop it, or take another store"
        ) from None
    except OSError as error:
        raise WriteError(f"cannot write to {folder}: {say(error)}") from error
    return lock
