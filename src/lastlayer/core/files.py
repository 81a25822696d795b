"""Files that are read: opened with errors that name them, and checked before they are unpacked."""

import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from lastlayer.core.checks import a_path, short
from lastlayer.core.names import printable
from lastlayer.errors import (
    FileFormatError,
    LastLayerError,
    MissingFileError,
    ReadError,
)

# How much a small file may grow in memory: more is a mistake, or an attempt to fill the memory.
FLOOR = 256 << 20  # bytes that any file may unpack to
FACTOR = 64  # and a file of more than 4 MiB, this many times its own size
NAMES = 1000  # of a folder, among which a misspelt one is looked for


@contextmanager
def reading(path: str | os.PathLike[str], what: str, hint: str = "") -> Iterator[Path]:
    """Yield the path of a file to read; every error inside the block names that file.

    It must be an ordinary one: a pipe or a device might never end. Messages say ``what`` it should
    be, such as "a .npz file", and end with a ``hint`` of what to do.

    >>> with reading("nothing.npz", "a .npz file") as path:
    ...     path.read_bytes()
    Traceback (most recent call last):
    ...
    lastlayer.errors.MissingFileError: no such file: nothing.npz; it must be a .npz file
    """
    place, after = a_path(path), f"; {hint}" if hint else ""
    check_ordinary(place, what, hint)
    try:
        yield place
    except LastLayerError:
        raise
    except MemoryError as error:
        raise _too_large(what, place, after) from error
    except OSError as error:
        if error.errno is None:  # Pillow, say, of what it cannot make sense of
            raise _damaged(what, place, error, after) from error
        raise ReadError(f"cannot read {place}: {say(error)}{after}") from error
    except Exception as error:  # a damaged file may raise anything
        if _NO_MEMORY in str(error):
            raise _too_large(what, place, after) from error
        raise _damaged(what, place, error, after) from error
    except BaseException as error:
        # Polars panics with an error that is not an Exception: no reason to end the program.
        if type(error).__name__ != "PanicException":
            raise
        raise _damaged(what, place, error, after) from error


def a_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder, which need not exist; refuse one the system cannot look up."""
    path = a_path(folder, "folder")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # whoever needs it says what it needs there
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise ReadError(f"cannot read {short(path)}: {say(error)}") from error
    return path


def check_ordinary(path: Path, what: str, hint: str = "") -> None:
    """Refuse a missing file, and anything but an ordinary one: a folder, a pipe, a device."""
    after = f"; {hint}" if hint else ""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        hints = f"{_nearest(path)}{after}"
        raise MissingFileError(f"no such file: {path}; it must be {what}{hints}") from None
    except (OSError, ValueError) as error:
        raise ReadError(f"cannot read {path}: {say(error)}{after}") from error
    if stat.S_ISDIR(mode):
        raise MissingFileError(f"{path} is a folder; it must be {what}{after}")
    if not stat.S_ISREG(mode):
        raise FileFormatError(f"{path} is a pipe or a device; it must be {what}{after}")


def _nearest(path: Path) -> str:
    """Return a question about the nearest name in the folder, if one is near."""
    try:
        names = {Path(e.name).stem: e.name for e in islice(os.scandir(path.parent), NAMES)}
    except OSError:  # the folder is missing too, or may not be read
        return ""
    near = get_close_matches(path.stem[:200], names, n=1, cutoff=0.7)
    return f"; did you mean '{printable(str(path.parent / names[near[0]]))}'?" if near else ""


def check_growth(path: Path, size: int, what: str) -> None:
    """Refuse a file that would unpack to ``size`` bytes in memory, more than it may take."""
    allowed = max(FLOOR, FACTOR * path.stat().st_size)
    if size > allowed:
        raise FileFormatError(
            f"{what} of {path} would take {size / 2**20:,.0f} MiB in memory, and a file of its "
            f"size may take {allowed / 2**20:,.0f} MiB: split it, or write it without compression"
        )


def check_archive(path: Path, what: str) -> None:
    """Refuse a zip archive that unpacks to more than its size allows."""
    with zipfile.ZipFile(path) as archive:
        check_growth(path, sum(entry.file_size for entry in archive.infolist()), what)


_NO_MEMORY = "Cannot allocate memory"  # how polars says that a file does not fit


def _too_large(what: str, path: Path, after: str) -> FileFormatError:
    return FileFormatError(f"expected {what}, but {path} asks for more memory than there is{after}")


def _damaged(what: str, path: Path, error: BaseException, after: str) -> FileFormatError:
    return FileFormatError(
        f"expected {what}, but {path} is not one, or is damaged: {say(error)}{after}"
    )


def say(error: BaseException) -> str:
    """Return the first line of an error; some libraries write a page."""
    said = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    line = str(said).splitlines()[0]
    return line if len(line) <= 300 else f"{line[:299]}…"
