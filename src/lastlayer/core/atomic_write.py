"""Files written completely or not at all, whatever interrupts the writing."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from threading import Lock

from lastlayer.errors import WriteError

_ONE_AT_A_TIME = Lock()  # the umask is the process's, and can only be read by setting another


def followed(path: Path) -> Path:
    """Return the file that links lead to, whether it is there or not; ``path`` if it is no link.

    To replace a link would leave the old content where it points to, and every other link to it
    unchanged.
    """
    if not path.is_symlink():
        return path
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # Python before 3.13 says of a loop that it is one
        target = path
    if target.is_symlink():
        raise WriteError(f"cannot write {path}: its links lead in a circle")
    return target


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk: a power cut may come after that."""
    place = os.open(path, os.O_RDONLY)
    try:
        os.fsync(place)
    except OSError as error:
        if error.errno != EINVAL:  # some file systems sync no folder
            raise
    finally:
        os.close(place)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, and those that it is in; their names are on disk when it returns."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for place in new:
        _sync(place.parent)


@contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """Yield a file to write to; it replaces ``path``, or what a link leads to, if all goes well.

    An interrupted write leaves what was there before, and so does a power cut; when the block has
    ended, what was written is on disk. Folders are made as they are needed.
    """
    path = followed(path)
    try:
        if path.exists() and not path.is_file():
            raise WriteError(f"expected a file to write, but {path} is a folder or a device")
        make_folder(path.parent)
        descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
        try:
            yield Path(unfinished)
            with _ONE_AT_A_TIME:
                umask = os.umask(0)
                os.umask(umask)
            os.chmod(unfinished, 0o666 & ~umask)
            # In this order: a name must not reach the disk before what it names.
            _sync(Path(unfinished))
            os.replace(unfinished, path)
            _sync(path.parent)
        finally:
            Path(unfinished).unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(f"cannot write {path}: {error}") from error
