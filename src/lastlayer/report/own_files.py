"""The files of a report, told apart from any other files in its folder.

A manifest keeps the name and the digest of each file that a report wrote. Only such a file, and
only if nobody has changed it since, is ever replaced or removed.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from lastlayer.core.atomic_write import in_place_of
from lastlayer.errors import BusyError, WriteError

MANIFEST = ".report.json"
LOCK = ".report.lock"
PAGE = "report.html"
FOLDERS = ("figures", "tables")
PATIENCE = 300.0  # seconds to wait for another report of the same folder

Digests = Mapping[str, Collection[str]]  # path within the folder → what its content may be


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other report is made in a folder."""
    path = folder / LOCK
    _refuse_link(path)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise BusyError(
            f"another process has been making the report of {folder} for {PATIENCE:.0f} s: wait "
            "until it has finished, and rerun the command"
        ) from None
    try:
        yield
    finally:
        lock.release()


def replace_report(folder: Path, files: Mapping[str, bytes], kept: Collection[str] = ()) -> None:
    """Write the files of a report, and remove those of an earlier one that this one lacks.

    A file in the way that is not ours is an error, before anything is written. Paths that are
    ``kept``, since this report was made from them, are left as they are.
    """
    _refuse_link(folder / MANIFEST)
    for name in FOLDERS:
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            why = "is a link, and it never writes through one" if path.is_symlink() else "is a file"
            raise WriteError(
                f"cannot write the report into {folder}: {path} {why}; move it away, and rerun "
                "the command"
            )
    before = _read(folder)
    now = {name: [sha256(content).hexdigest()] for name, content in files.items()}
    # Whatever interrupts the writing: each file is in the manifest before it is on the disk.
    both = {name: [*before.get(name, ()), *now.get(name, ())] for name in {*before, *now}}
    _refuse_to_overwrite(folder, now, before, both)
    _keep(folder, both)
    for name, content in files.items():
        with in_place_of(folder / name) as unfinished:
            unfinished.write_bytes(content)
    for name in before.keys() - now.keys() - set(kept):
        if _is_ours(folder / name, before[name]):
            (folder / name).unlink()
    _keep(folder, {name: before[name] for name in kept if name in before} | now)


def _refuse_link(path: Path) -> None:
    """Refuse a link where a report keeps a file for itself: a stranger may have put it there."""
    if path.is_symlink():
        raise WriteError(f"{path} is a link, and a report writes through none: remove it")


def _refuse_to_overwrite(folder: Path, now: Digests, before: Digests, both: Digests) -> None:
    """Refuse to overwrite a file that is not ours."""
    there = [name for name in now if os.path.lexists(folder / name)]
    theirs = [name for name in there if not _is_ours(folder / name, both[name])]
    if not theirs:
        return
    more = f" (and {len(theirs) - 1} more)" if len(theirs) > 1 else ""
    why = "was changed since" if theirs[0] in before else "was not written by lastlayer report"
    raise WriteError(
        f"the report would replace {folder / theirs[0]}{more}, which {why}: move it away or rename "
        "it, and rerun the command"
    )


def _is_ours(path: Path, digests: Collection[str]) -> bool:
    if path.parent.is_symlink() or path.is_symlink() or not path.is_file():
        return False
    return sha256(path.read_bytes()).hexdigest() in digests


def _read(folder: Path) -> dict[str, list[str]]:
    """Read the manifest; if it is damaged or a link, no file counts as ours."""
    path = folder / MANIFEST
    if path.is_symlink() or not path.is_file():
        return {}
    try:
        files = json.loads(path.read_bytes())["files"]
        return {name: [str(d) for d in found] for name, found in files.items() if _possible(name)}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _possible(name: str) -> bool:
    """Return whether a report could have written this name, since a manifest may be altered."""
    folder, _, rest = name.rpartition("/")
    return name == PAGE or (folder in FOLDERS and rest not in ("", ".", "..") and "\0" not in rest)


def _keep(folder: Path, files: Digests) -> None:
    known = {
        "what": "the files that lastlayer report wrote here, and their SHA-256",
        "files": {name: list(dict.fromkeys(files[name])) for name in sorted(files)},
    }
    with in_place_of(folder / MANIFEST) as unfinished:
        unfinished.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
