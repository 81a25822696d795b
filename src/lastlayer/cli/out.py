"""The file that a verb writes: checked before the work, and written whole."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lastlayer.core.atomic_write import followed, in_place_of, make_folder
from lastlayer.core.files import say
from lastlayer.core.names import class_name
from lastlayer.errors import OptionError, WriteError

if TYPE_CHECKING:
    import polars as pl


def prepare(out: Path, *read: Path, force: bool = True, option: str = "--out") -> None:
    """Check before the work that its result can be written, and make the folder it needs.

    Files that the work reads must not be lost; others that exist may be overwritten by ``force``.
    ``option``: what the file is called on the command line.
    """
    out = followed(out)
    try:
        make_folder(out.parent)
    except OSError as error:
        raise WriteError(f"cannot write {out}: {error}") from error
    place = out if out.exists() else out.parent
    if out.is_dir() or not (os.access(out.parent, os.W_OK) and os.access(place, os.W_OK)):
        raise OptionError(f"{option} must be a file that can be written, got {out}")
    if out.exists() and any(file.exists() and out.samefile(file) for file in read):
        raise OptionError(f"{option} would overwrite an input, {out}: choose another file")
    if out.exists() and not force:
        raise OptionError(f"{out} already exists: choose another file, or overwrite with --force")


def prepare_head(head: Path, out: Path | None, *read: Path, force: bool) -> Path:
    """Return where a changed head goes, ``out`` or its own file, and prepare it."""
    place = out or head
    same = place.exists() and head.exists() and place.samefile(head)
    prepare(place, *read, force=force or same)
    return place


def prepare_table(file: Path, *read: Path, force: bool = True) -> None:
    """Prepare a file as ``prepare`` does; refuse a format that tables cannot have."""
    if file.suffix not in (".csv", ".parquet"):
        raise OptionError(f"a table must be a .csv or .parquet file, got {file}")
    prepare(file, *read, force=force)


def write_table(table: "pl.DataFrame", file: Path) -> None:
    """Write a table as its file's name says."""
    import polars as pl
    from polars.exceptions import PolarsError

    if file.suffix == ".csv":
        table = table.with_columns(pl.col(pl.String).map_elements(_harmless, pl.String))
    with in_place_of(file) as part:
        try:
            (table.write_csv if file.suffix == ".csv" else table.write_parquet)(part)
        except PolarsError as error:
            # polars reports a full disk so, where it writes Parquet.
            raise WriteError(f"cannot write {file}: {say(error)}") from error


def _harmless(text: str) -> str:
    """Return text that does nothing where a .csv is printed, or opened as a spreadsheet.

    Odd characters are spelt out, as in the names of classes, and what would begin a formula, but
    is no number, gets an apostrophe.
    """
    text = class_name(text)
    return f"'{text}" if _FORMULA.match(text) else text


_FORMULA = re.compile(r"[=@]|[+-](?![0-9.]+(e[+-]?[0-9]+)?$)")


def say_written(file: Path) -> None:
    """Print where the result is."""
    print(f"wrote {file}: {file.stat().st_size:,} bytes")
