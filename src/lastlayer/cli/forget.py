"""The verb that makes a head forget rows, or a class."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import prepare_head, say_written
from lastlayer.cli.text import count
from lastlayer.errors import DataError, OptionError, UnlearnedRowsError


@app.command(rich_help_panel=USE)
def forget(
    head: options.Head,
    features: Annotated[
        str | None,
        typer.Argument(
            help="The rows to forget, in any form that fit takes. Not needed with --class."
        ),
    ] = None,
    class_: Annotated[
        str | None,
        typer.Option(
            "--class", help="Forget this class; if rows are given, only those of this class."
        ),
    ] = None,
    out: options.HeadOut = None,
    rows: options.Rows = "train",
    label: options.Label = None,
    embedding: options.Embedding = None,
    weight: options.Weight = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Also forget rows that were forgotten before, or held out to calibrate with: the "
            "head has learned copies of them. If it has not, it forgets what it never learned.",
        ),
    ] = False,
    skip_not_learned: Annotated[
        bool,
        typer.Option(
            "--skip-not-learned",
            help="Leave out rows that were forgotten before, or held out to calibrate with.",
        ),
    ] = False,
    accept_features: options.AcceptFeatures = False,
    force: options.Force = False,
) -> None:
    """Make a head forget rows or a class, as if it had never seen them, or refuse if it cannot."""
    from lastlayer.estimator import fitting

    if features is None and class_ is None:
        raise OptionError("pass rows to forget, or a class with --class NAME")
    if again and skip_not_learned:
        raise OptionError("--again and --skip-not-learned contradict each other: choose one")
    place = prepare_head(head, out, *([Path(features)] if features else []), force=force)
    with fitting.changing(head, place) as clf:
        which: dict[str, Any] = {"rows": rows, "embedding": embedding, "label": label}
        which |= {"weight": weight, "again": again, "accept_features": accept_features}
        which |= {"skip_not_learned": skip_not_learned}
        try:
            n, left_out = fitting.forget(clf, features, **which, only=class_)
        except UnlearnedRowsError as error:
            raise DataError(error.told("--skip-not-learned", "--again")) from None
    of = f" of {class_}" if class_ else ""
    print(f"forgot {count(n, 'row')}{of}{f'; {left_out}' if left_out else ''}")
    if features is not None and n:
        print(clf.head_.proof)
    say_written(place)
