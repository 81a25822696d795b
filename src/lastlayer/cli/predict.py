"""The verb that labels rows with a head from a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import prepare_table, write_table


@app.command(rich_help_panel=USE)
def predict(
    head: options.Head,
    features: options.Features,
    out: options.TableOut,
    rows: options.Rows = "all",
    label: options.Label = None,
    embedding: options.Embedding = None,
    unknown: Annotated[
        float | None,
        typer.Option(help="Leave strange rows unlabelled, and at most this share of known ones."),
    ] = None,
    id: options.Id = None,
    top: Annotated[
        int, typer.Option(help="Labels to write for each row, the likeliest first.")
    ] = 1,
    accept_features: options.AcceptFeatures = False,
    force: options.Force = False,
) -> None:
    """Write the label of each row and its probability; with labels given, print the accuracy."""
    from lastlayer.estimator import HeadClassifier, fitting

    prepare_table(out, head, Path(features), force=force)
    clf = HeadClassifier.load(head)
    how: dict[str, Any] = {"rows": rows, "embedding": embedding, "label": label}
    how |= {"accept_features": accept_features}
    table, right = fitting.predict(clf, features, **how, unknown=unknown, id=id, top=top)
    write_table(table, out)
    strange = table["label"].null_count()
    if unknown is not None:
        print(f"{100 * strange / max(table.height, 1):.1f} % unknown: {strange} rows have no label")
    of = " of the known ones" if strange else ""
    for split, share in right.items():
        print(f"{100 * share:.1f} % right{of}{f' in {split}' if split else ''}")
    print(f"wrote {out}: {table.height - strange} labels")
