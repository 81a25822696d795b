"""The command that calibrates a head on rows that it has not learned."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.cli.app import USE, app
from lastlayer.cli.fit import EmbeddingOption, FeaturesArgument, LabelOption
from lastlayer.cli.out import Force, room_for_head
from lastlayer.cli.predict import HeadArgument
from lastlayer.cli.text import describe_calibration

if TYPE_CHECKING:
    from lastlayer.estimator import HeadClassifier


@app.command(rich_help_panel=USE)
def calibrate(
    head: HeadArgument,
    features: FeaturesArgument,
    out: Annotated[
        Path | None, typer.Option(help="Write the head here, and leave the old one as it is.")
    ] = None,
    rows: Annotated[str, typer.Option(help="train, validation, test or all.")] = "validation",
    label: LabelOption = None,
    embedding: EmbeddingOption = None,
    force: Force = False,
) -> None:
    """Make a head's probabilities reliable, using labelled rows that it has not learned."""
    from lastlayer.fitting import calibrate as find_out  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.fitting import update  # noqa: PLC0415

    place = room_for_head(head, out, Path(features), force=force)

    def change(clf: "HeadClassifier") -> None:
        find_out(clf, features, rows=rows, embedding=embedding, label=label)

    clf = update(head, change, place)
    if clf.head_.calibration is not None:
        print(describe_calibration(clf.head_.calibration))
    print(f"wrote {place}: {place.stat().st_size:,} bytes")
