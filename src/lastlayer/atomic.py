"""Files that are written completely or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """Yield a file to write to; it replaces ``path``, or what a link leads to, if all goes well.

    An interrupted write leaves what was there before. Folders are made as they are needed.
    """
    path = followed(path)
    try:
        if path.exists() and not path.is_file():
            raise WriteError(f"expected a file to write, but {path} is a folder or a device")
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
        try:
            yield Path(unfinished)
            with _ONE_AT_A_TIME:
                umask = os.umask(0)
                os.umask(umask)
            os.chmod(unfinished, 0o666 & ~umask)
            os.replace(unfinished, path)
        finally:
            Path(unfinished).unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(f"cannot write {path}: {error}") from error
