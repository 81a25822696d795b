"""The verb that watches a head on the rows that it is to answer."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import prepare, prepare_head, say_written

if TYPE_CHECKING:
    from lastlayer.data.rows import Rows
    from lastlayer.live.watch.watch import Alarm, Watch

TOGETHER = 500  # rows from one point of the page to the next


@app.command(rich_help_panel=USE)
def watch(
    head: options.Head,
    features: options.Features,
    rows: options.Rows = "all",
    label: options.Label = None,
    embedding: options.Embedding = None,
    false_alarms: Annotated[
        float | None,
        typer.Option(help="The chance that there is ever a false alarm; 0.05 by default."),
    ] = None,
    between: options.RowsBetween = None,
    tolerance: Annotated[
        float | None, typer.Option(help="How much more often the head may err, as a share.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Begin anew; the promise is then made once more.")
    ] = False,
    page: options.Page = None,
    as_json: options.Json = False,
    on_alarm: options.OnAlarm = None,
    accept_features: options.AcceptFeatures = False,
    out: options.HeadOut = None,
    force: options.Force = False,
) -> None:
    """Say whether a head gets worse, its inputs are strange, or a class has moved.

    Rows are taken in their order, and what was seen is kept in the file of the head: the next call
    continues. Without labels only the second question is asked.
    """
    from lastlayer.data.rows import read_rows
    from lastlayer.estimator import fitting
    from lastlayer.live.watch.on_alarm import tell
    from lastlayer.live.watch.watch import Watch

    place = prepare_head(head, out, Path(features), force=force)
    if page is not None:
        prepare(page, head, Path(features), place, option="--page")
    with fitting.changing(head, place) as clf:
        watched = Watch(clf, false_alarms, rows=between, tolerance=tolerance, reset=reset)
        how: dict[str, Any] = {"embedding": embedding, "label": label, "columns": clf.column_names}
        parts = read_rows(features, rows, labelled=False, **how)
        parts = [replace(part, accepted=accept_features) for part in parts]
        alarms = [alarm for part in parts for alarm in _see(watched, part)]
    report = watched.report()
    print(json.dumps(report.document(), indent=2) if as_json else report)
    if page is not None:
        watched.page(page)
    if not as_json:
        if page is not None:
            say_written(page)
        say_written(place)
    if alarms and on_alarm is not None:
        tell(on_alarm, alarms)


def _see(watched: "Watch", part: "Rows") -> "list[Alarm]":
    """Show a watch the rows of one split, some at a time."""
    alarms: list[Alarm] = []
    for begin in range(0, len(part.z), TOGETHER):
        some = slice(begin, begin + TOGETHER)
        y = None if part.y is None else part.y[some]
        alarms += watched.see_file(replace(part, z=part.z[some], y=y))
    return alarms
