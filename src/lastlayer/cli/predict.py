"""The command that labels rows with a head from a file."""

from pathlib import Path
from typing import Annotated

import typer

from lastlayer.cli.app import USE, app
from lastlayer.cli.fit import (
    EmbeddingOption,
    FeaturesArgument,
    LabelOption,
)
from lastlayer.cli.out import Force, make_room, make_room_for_table, write_table
from lastlayer.cli.text import describe_calibration
from lastlayer.errors import OptionError


def _not_a_table(head: Path) -> Path:
    """Refuse a table where a head belongs: both are files, and their order is easily forgotten."""
    from lastlayer.features.load import TABLES  # noqa: PLC0415  (keeps --help quick)

    if head.suffix.lower() in TABLES:
        raise OptionError(
            "expected a head, as lastlayer fit writes it, as the first argument, but "
            f"{head} is a table"
        )
    return head


HeadArgument = Annotated[Path, typer.Argument(help="The file of a head.", callback=_not_a_table)]


@app.command(rich_help_panel=USE)
def predict(
    head: HeadArgument,
    features: FeaturesArgument,
    out: Annotated[Path, typer.Option(help="The .csv or .parquet file to write.")],
    rows: Annotated[str, typer.Option(help="train, validation, test or all.")] = "all",
    label: LabelOption = None,
    embedding: EmbeddingOption = None,
    unknown: Annotated[
        float | None,
        typer.Option(help="Leave strange rows unlabelled, and at most this share of known ones."),
    ] = None,
    force: Force = False,
) -> None:
    """Write the label of each row and its probability; with labels given, print the accuracy."""
    from lastlayer.estimator import HeadClassifier  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.fitting import predict as answer  # noqa: PLC0415

    make_room_for_table(out)
    make_room(out, head, *([Path(features)] if Path(features).exists() else []), force=force)
    clf = HeadClassifier.load(head)
    before = clf.head_.calibration
    if unknown is None and before is not None and before.stale:
        clf.head_.calibration = None  # labels need none; say so of the probabilities
    table, right = answer(
        clf, features, rows=rows, embedding=embedding, label=label, unknown=unknown
    )
    write_table(table, out)
    if before is not None and before.stale:
        print(f"probabilities are not calibrated: {describe_calibration(before)}")
    strange = table["label"].null_count()
    if unknown is not None:
        print(f"{100 * strange / max(table.height, 1):.1f} % unknown: {strange} rows have no label")
    of = " of the known ones" if strange else ""
    for split, share in right.items():
        print(f"{100 * share:.1f} % right{of}{f' in {split}' if split else ''}")
    print(f"wrote {out}: {table.height - strange} labels")
