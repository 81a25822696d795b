"""The command that makes a head forget rows, or a class."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.cli.app import USE, app
from lastlayer.cli.fit import EmbeddingOption, LabelOption
from lastlayer.cli.out import Force, room_for_head
from lastlayer.cli.predict import HeadArgument
from lastlayer.errors import OptionError

if TYPE_CHECKING:
    from lastlayer.estimator import HeadClassifier


@app.command(rich_help_panel=USE)
def forget(
    head: HeadArgument,
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
    out: Annotated[
        Path | None, typer.Option(help="Write the new head here, and leave the old one as it is.")
    ] = None,
    rows: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    label: LabelOption = None,
    embedding: EmbeddingOption = None,
    force: Force = False,
) -> None:
    """Make a head forget rows or a class, as if it had never seen them, or refuse if it cannot."""
    from lastlayer.fitting import forget as take_out  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.fitting import update  # noqa: PLC0415

    if features is None and class_ is None:
        raise OptionError("expected rows to forget, or a class with --class NAME, got neither")
    place = room_for_head(head, out, *([Path(features)] if features else []), force=force)
    done = []

    def change(clf: "HeadClassifier") -> None:
        if features is None:
            name = clf.label_like(class_ or "")
            counts = clf.head_.class_counts
            column = clf.head_.class_names.index(str(name)) if clf.head_.class_names else -1
            done.append(int(counts[column]) if counts is not None else 0)
            clf.forget_class(name)
        else:
            where = {"embedding": embedding, "label": label, "only": class_}
            done.append(take_out(clf, features, rows=rows, **where))

    clf = update(head, change, place)
    print(f"forgot {done[0]} samples{f' of {class_}' if class_ else ''}")
    if features is not None:
        print(clf.head_.proof)
    print(f"wrote {place}: {place.stat().st_size:,} bytes")
