"""The command that writes what came of a study as a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.cli.app import USE, app
from lastlayer.cli.out import make_room_for_table, write_table
from lastlayer.cli.text import count

if TYPE_CHECKING:
    from lastlayer.results import Study


@app.command(rich_help_panel=USE)
def export(
    folder: Annotated[Path, typer.Argument(help="The folder that 'lastlayer run' wrote.")],
    file: Annotated[Path, typer.Argument(help="A .csv or .parquet file to write.")],
) -> None:
    """Write a table of all finished runs: what each is, its accuracy and its measures."""
    import polars as pl  # noqa: PLC0415  (keeps --help quick)

    from lastlayer.results import load_study  # noqa: PLC0415
    from lastlayer.results.columns import KINDS  # noqa: PLC0415

    make_room_for_table(file)
    study = load_study(folder)
    tables = [study.done, study.replay.filter(state="done")]
    kinds = [t.with_columns(kind=pl.lit(k)) for k, t in zip(KINDS, tables, strict=True)]
    done = pl.concat([table for table in kinds if table.height] or kinds[:1], how="diagonal")
    done = done.drop("state", "message")
    write_table(done, file)
    print(f"{count(done.height, 'run')} in {file}")
    say_what_is_unverified(study)


def say_what_is_unverified(study: "Study") -> None:
    """Say which results were written before they could be verified."""
    from lastlayer.results.seal import UNVERIFIED  # noqa: PLC0415

    if UNVERIFIED in study.about:
        print(f"unverified: {study.about[UNVERIFIED]}")
