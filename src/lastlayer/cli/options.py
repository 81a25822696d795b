"""The arguments and options that several verbs share, each with its one help text."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lastlayer.catalogue.scenario_cards import forms_of_scenarios
from lastlayer.errors import OptionError


def _not_a_table(head: Path) -> Path:
    """Refuse a table where a head belongs: both are files, and their order is easily forgotten."""
    from lastlayer.data.load import TABLES

    if head.suffix.lower() in TABLES:
        raise OptionError(
            f"the first argument must be a head, as lastlayer fit writes it, but {head} is a table"
        )
    return head


Head = Annotated[Path, typer.Argument(help="The file of a head.", callback=_not_a_table)]
Features = Annotated[
    str, typer.Argument(help="A features file, cifar10 or cifar100, or a table that import takes.")
]
Rows = Annotated[
    str,
    typer.Option(
        help="train, validation, test or all; a table without a split column is taken whole."
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        help="Column of labels; not needed for a features file, or if it is called y, label, "
        "target or class."
    ),
]
Weight = Annotated[
    str | None,
    typer.Option(help="Column that says how often each row counts; without it, each counts once."),
]
Embedding = Annotated[
    str | None,
    typer.Option(
        help="Column of embeddings of a table, or columns by prefix ('z_*') or range "
        "(z_0:z_383); not needed if there is only one."
    ),
]
HeadOption = Annotated[
    list[str] | None, typer.Option(help="Option of the head, such as k=7; may be repeated.")
]
Drop = Annotated[
    Path | None, typer.Option(help="Leave out the rows in this table of lastlayer audit.")
]
Relabel = Annotated[
    Path | None,
    typer.Option(help="Learn the rows in this table of lastlayer audit with its suggestions."),
]
Scenario = Annotated[
    str | None,
    typer.Option(
        help=f"A name (lastlayer list scenarios), or one of {forms_of_scenarios()}; "
        "with /LABEL at the end, that label is learned."
    ),
]
Incremental = Annotated[
    str | None,
    typer.Option(help="Tasks with new classes: 5 of them, or 4,3,3: so many classes in each."),
]
By = Annotated[str | None, typer.Option(help="A task for each value of this column.")]
Heads = Annotated[list[str] | None, typer.Option(help="These heads only: a,b; may be repeated.")]
AcceptFeatures = Annotated[
    bool,
    typer.Option(
        "--accept-features", help="Take features that another model made, or seems to have made."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn at random.")]
Broken = Annotated[str, typer.Option(help="What to do about a broken file: stop or skip.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Ray = Annotated[
    str | None, typer.Option(help="Work on a Ray cluster: its address, auto, or local.")
]
HeadOut = Annotated[
    Path | None,
    typer.Option(
        help="File to write the head to; by default, a head from a file is changed in place."
    ),
]
TableOut = Annotated[Path, typer.Option(help="The .csv or .parquet file to write.")]
Page = Annotated[
    Path | None, typer.Option(help="Also write the result as a page, to this .html file.")
]
Id = Annotated[
    str | None, typer.Option("--id", help="Column that names the rows, to be copied to the output.")
]
RowsBetween = Annotated[
    float | None,
    typer.Option("--rows-between", help="Instead: rows between false alarms on average, at least."),
]
OnAlarm = Annotated[
    str | None,
    typer.Option(help="Command that reads new alarms as JSON, or http(s) address to POST them."),
]
FeaturesOut = Annotated[Path, typer.Option(help="The features file to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")]


def heads_in(texts: list[str] | None) -> list[str] | None:
    """Return the heads that ``--heads`` names; None: it was not given.

    >>> heads_in(["mean,slda", "knn"])
    ['mean', 'slda', 'knn']
    """
    return [name for text in texts or () for name in text.split(",") if name] or None


def of_head(texts: list[str] | None) -> dict[str, Any]:
    """Read options of a head: k=7, prior=empirical, diagonal=true.

    >>> of_head(["k=7", "prior=empirical"])
    {'k': 7, 'prior': 'empirical'}
    """
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(f"--option must be name=value, got '{text}'")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
