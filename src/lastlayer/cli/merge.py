"""The verb that merges heads which have learned apart from one another."""

from pathlib import Path
from typing import Annotated

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import prepare, say_written
from lastlayer.cli.text import count, describe_calibration


@app.command(rich_help_panel=USE)
def merge(
    heads: Annotated[list[Path], typer.Argument(help="The files of two or more heads.")],
    out: Annotated[Path, typer.Option(help="The file to write the merged head to.")],
    accept_features: options.AcceptFeatures = False,
    force: options.Force = False,
) -> None:
    """Merge heads into one, as if it had learned everything that each of them has.

    Classes are matched by name. Heads that are to be merged are fitted with the same settings, or
    with fit --like.
    """
    from lastlayer.estimator import fitting

    prepare(out, *heads, force=force)
    clf = fitting.merge(*heads, accept_features=accept_features)
    clf.save(out)
    counts = clf.head_.class_counts
    rows = "" if counts is None else f"{int(counts.sum())} rows; "
    print(f"merged {len(heads)} {clf.head_.name} heads: {rows}{count(len(clf.classes_), 'class')}")
    if clf.head_.calibration is not None:
        print(describe_calibration(clf.head_.calibration))
    say_written(out)
