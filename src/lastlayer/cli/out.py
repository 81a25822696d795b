"""The file for the result, checked before the work."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.atomic import followed, in_place_of
from lastlayer.errors import OptionError, WriteError
from lastlayer.reading import say

if TYPE_CHECKING:
    import polars as pl


def make_room_for_table(file: Path) -> None:
    """Make room as ``make_room`` does; refuse a format that tables cannot have."""
    if file.suffix not in (".csv", ".parquet"):
        raise OptionError(f"expected a .csv or .parquet file to write, got {file}")
    make_room(file)


def write_table(table: "pl.DataFrame", file: Path) -> None:
    """Write a table as its file's name says."""
    from polars.exceptions import PolarsError  # noqa: PLC0415  (keeps --help quick)

    with in_place_of(file) as part:
        try:
            (table.write_csv if file.suffix == ".csv" else table.write_parquet)(part)
        except PolarsError as error:  # so a full disk is told, where Parquet is written
            raise WriteError(f"cannot write {file}: {say(error)}") from error


Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")]


def make_room(out: Path, *read: Path, force: bool = True, option: str = "--out") -> None:
    """Check before the work that its result can be written, and make the folder it needs.

    Args:
        out: the file that will be written.
        *read: files that the work reads, which must not be lost.
        force: whether an existing file may be overwritten.
        option: what it is called on the command line.
    """
    out = followed(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot write {out}: {error}") from error
    place = out if out.exists() else out.parent
    if out.is_dir() or not (os.access(out.parent, os.W_OK) and os.access(place, os.W_OK)):
        raise OptionError(f"expected a file that can be written as {option}, got {out}")
    if out.exists() and any(file.exists() and out.samefile(file) for file in read):
        raise OptionError(f"{option} would overwrite an input, {out}: choose another file")
    if out.exists() and not force:
        raise OptionError(f"{out} already exists: choose another file, or overwrite with --force")


def room_for_head(head: Path, out: Path | None, *read: Path, force: bool) -> Path:
    """Return where a changed head goes, ``out`` or its own file, and make room there."""
    place = out or head
    same = place.exists() and head.exists() and place.samefile(head)
    make_room(place, *read, force=force or same)
    return place
