"""A place for the result, found before the work."""

import os
from pathlib import Path

from lastlayer.errors import OptionError, WriteError


def make_room(out: Path | None) -> None:
    """Find out before the work whether its result can be written; make the folder it needs."""
    if out is None:
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot write {out}: {error}") from error
    place = out if out.exists() else out.parent
    if out.is_dir() or not (os.access(out.parent, os.W_OK) and os.access(place, os.W_OK)):
        raise OptionError(f"expected a file that can be written as --out, got {out}")
