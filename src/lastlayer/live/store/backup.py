"""A copy of stores while they are at work: one file, consistent, to be unpacked in their place."""

import os
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

from lastlayer.core.atomic_write import in_place_of
from lastlayer.core.files import say
from lastlayer.errors import MissingFileError, WriteError
from lastlayer.live.store.head_store import HEAD, JOURNAL

TRIES = 100


def back_up(folder: Path, to: Path) -> list[str]:
    """Copy the stores of a folder to a tar file; return their names.

    The head's file is copied around the journal: if it was not replaced meanwhile, the journal has
    all that came after it.
    """
    names = stores_in(folder)
    if not names:
        raise MissingFileError(f"there is no store in {folder}")
    with in_place_of(to) as unfinished, tarfile.open(unfinished, "w") as tar:
        for name in names:
            with tempfile.TemporaryDirectory(dir=to.parent) as aside:
                for file in _copy(folder / name, Path(aside)):
                    tar.add(file, f"{name}/{file.name}", filter=_private)
    to.chmod(0o600)  # it holds rows
    return names


def stores_in(folder: Path) -> list[str]:
    """Return the names of the heads that have a store in a folder."""
    return sorted(file.parent.name for file in folder.glob(f"*/{HEAD}"))


def _private(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member that its owner alone may read, once it is unpacked."""
    member.mode = 0o600
    return member


def _copy(store: Path, aside: Path) -> list[Path]:
    source, journal = store / HEAD, aside / JOURNAL
    for _ in range(TRIES):
        with source.open("rb") as head:
            journal.unlink(missing_ok=True)
            _copy_journal(store / JOURNAL, journal)
            if os.stat(source).st_ino == os.fstat(head.fileno()).st_ino:
                (aside / HEAD).write_bytes(head.read())
                others = [f for f in store.glob("*.safetensors") if f.name != HEAD]
                for other in others:
                    (aside / other.name).write_bytes(other.read_bytes())
                return sorted(aside.iterdir())
    raise WriteError(f"{store} changes too quickly to be copied: try again")


def _copy_journal(source: Path, to: Path) -> None:
    try:
        with (
            closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=5)) as db,
            closing(sqlite3.connect(to)) as copy,
        ):
            db.backup(copy)
    except sqlite3.Error as error:
        raise WriteError(f"cannot copy {source}: {say(error)}") from error
