"""The verb that makes a head forget rows, or a class."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import prepare_head, say_written
from lastlayer.errors import OptionError


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
            "head has learned copies of them.",
        ),
    ] = False,
    accept_features: options.AcceptFeatures = False,
    force: options.Force = False,
) -> None:
    """Make a head forget rows or a class, as if it had never seen them, or refuse if it cannot."""
    from lastlayer.estimator import fitting

    if features is None and class_ is None:
        raise OptionError("pass rows to forget, or a class with --class NAME")
    place = prepare_head(head, out, *([Path(features)] if features else []), force=force)
    with fitting.changing(head, place) as clf:
        which: dict[str, Any] = {"rows": rows, "embedding": embedding, "label": label}
        which |= {"weight": weight, "again": again, "accept_features": accept_features}
        n = fitting.forget(clf, features, **which, only=class_)
    print(f"forgot {n} samples{f' of {class_}' if class_ else ''}")
    if features is not None:
        print(clf.head_.proof)
    say_written(place)
