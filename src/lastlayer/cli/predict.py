"""The verb that labels rows with a head from a file."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import prepare_table, write_table
from lastlayer.cli.text import count
from lastlayer.core.names import class_name, first_few


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
    from lastlayer.data.rows import read_rows
    from lastlayer.estimator import HeadClassifier, fitting

    prepare_table(out, head, Path(features), force=force)
    clf = HeadClassifier.load(head)
    how: dict[str, Any] = {"rows": rows, "embedding": embedding, "label": label}
    also = () if id is None else (id,)
    found = read_rows(features, **how, labelled=False, also=also, columns=clf.column_names)
    how |= {"accept_features": accept_features}
    table, right = fitting.predict(clf, found, **how, unknown=unknown, id=id, top=top)
    write_table(table, out)
    strange = table["label"].null_count()
    if unknown is not None:
        have = f"{count(strange, 'row')} {'has' if strange == 1 else 'have'} no label"
        print(f"{100 * strange / max(table.height, 1):.1f} % unknown: {have}")
    of = " of those not turned away" if strange else ""
    for split, share in right.items():
        print(f"{100 * share:.1f} % right{of}{f' in {split}' if split else ''}")
    if foreign := _foreign(clf, found):
        named = [f"'{class_name(name)}' ({count(n, 'row')})" for name, n in foreign.items()]
        no = "is no class" if len(named) == 1 else "are no classes"
        print(f"{first_few(named)} {no} of this head, so no answer there can be right")
    print(f"wrote {out}: {count(table.height - strange, 'label')}")


def _foreign(clf: Any, parts: list[Any]) -> Counter[str]:
    """Return how many rows have each label that a head neither learned nor answers with."""
    known = {*clf.labels_.names, *map(str, clf.classes_.tolist())}
    given = Counter(part.names[c] for part in parts if part.y is not None for c in part.y.tolist())
    return Counter({name: n for name, n in given.items() if name not in known})
