"""The verb that makes the report of a study."""

from pathlib import Path
from typing import Annotated

import typer

from lastlayer.cli.app import STUDY, app


@app.command(rich_help_panel=STUDY)
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder with the results of a study.")
    ],
) -> None:
    """Make one page with every figure and table of a study: DIR/report.html.

    The charts are in DIR/figures/*.svg and *.pdf, the tables in DIR/tables/*.csv, *.md and *.tex.
    A folder with only tables/*.csv is enough.
    """
    from lastlayer.report import write

    print(write(folder))
