"""The verb that calibrates a head on rows that it has not learned."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import prepare_head, say_written
from lastlayer.cli.text import describe_calibration


@app.command(rich_help_panel=USE)
def calibrate(
    head: options.Head,
    features: options.Features,
    out: options.HeadOut = None,
    rows: options.Rows = "validation",
    label: options.Label = None,
    embedding: options.Embedding = None,
    living: Annotated[
        bool,
        typer.Option(
            "--living", help="Let it follow the labelled rows that the head learns from now on."
        ),
    ] = False,
    accept_features: options.AcceptFeatures = False,
    force: options.Force = False,
) -> None:
    """Make a head's probabilities reliable, using labelled rows that it has not learned."""
    from lastlayer.estimator import fitting

    place = prepare_head(head, out, Path(features), force=force)
    with fitting.changing(head, place) as clf:
        which: dict[str, Any] = {"rows": rows, "embedding": embedding, "label": label}
        which |= {"accept_features": accept_features}
        fitting.calibrate(clf, features, **which, living=living)
    if clf.head_.calibration is not None:
        print(describe_calibration(clf.head_.calibration))
    say_written(place)
