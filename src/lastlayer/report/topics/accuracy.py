"""Accuracy over time on each stream (Fig. 4), the continual measures, and the first task alone."""

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import accuracy_since_learned, share, share_of_all
from lastlayer.analysis.timeline import MOST_POINTS
from lastlayer.report.charts import lines, told
from lastlayer.report.data_names import cited
from lastlayer.report.looks import heads_of, hidden_of, place_of
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream
from lastlayer.report.select import HEAD, STREAM, WHAT, in_order, percent, streams
from lastlayer.report.sheet import MEAN, Sheet, integers, numbers, rows_as, texts
from lastlayer.report.table import Table, mean_of, number, short, spread, words
from lastlayer.results import Study

MEASURES = {
    "average": "average accuracy while learning, %",
    "forgetting": "forgetting, points",
    "backward_transfer": "backward transfer",
    "forward_transfer": "forward transfer",
}
TEXT = "Each head learns the tasks of a stream one after the other and never sees a task again."
AXIS = "accuracy on all tasks, %"
FIRST_AXIS = "accuracy on the first task, %"
CURVE = (
    texts(*WHAT)
    | integers(
        "n_tasks",
        "task",  # tasks learned wholly by then
        "epoch",  # epochs of the task after them
    )
    | numbers("learned")  # both, in tasks
    | MEAN
)
CELL = (
    texts(*STREAM, "kind", "preset", *HEAD, "name")
    | numbers("lr")
    | integers("n_classes", "n_tasks")
)


def accuracy(study: Study) -> pl.DataFrame:
    """Return mean and deviation over orders of the final accuracy, and the continual measures."""
    whole = pl.col("diverged").is_null()  # what a run did until it diverged says nothing
    table = (
        streams(study)
        .group_by(CELL.keys())
        .agg(
            *percent("final"),
            pl.col("diverged").count().cast(pl.Int64),
            *((pl.col(name) * 100).filter(whole).mean() for name in MEASURES),
        )
    )
    return in_order(table, "kind", *STREAM, *HEAD)


def curves(study: Study) -> pl.DataFrame:
    """Return the accuracy on the whole test set before training and after each epoch."""
    runs = streams(study).filter(pl.col("diverged").is_null())
    right, sizes = (study.arrays(name, runs) for name in ("right_by_class", "n_per_class"))
    found = {d: share_of_all(right[d], sizes[d]) for d in right}
    return as_curves(runs, found, skip=0)


def first_task(study: Study) -> pl.DataFrame:
    """Return the accuracy on the first task since it was learned, in lifelong streams."""
    runs = streams(study).filter(pl.col("diverged").is_null(), kind="lifelong")
    return as_curves(runs, on_first_task(study, runs), skip=1)


def on_first_task(study: Study, runs: pl.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the accuracy on the first task since it was learned, by the run's digest.

    Runs whose test data belong to no task are left out.
    """
    names = ("right_by_task", "n_per_task", "task_order")
    right, sizes, orders = (study.arrays(name, runs) for name in names)
    return {
        digest: accuracy_since_learned(share(right[digest], sizes[digest]), order.tolist())
        for digest, order in orders.items()
        if len(sizes[digest])
    }


ACCURACY = Sheet("accuracy", CELL | MEAN | integers("diverged") | numbers(*MEASURES), accuracy)
CURVES = Sheet("curves", CURVE, curves)
FIRST_TASK_CURVES = Sheet("first_task", CURVE, first_task)


def as_curves(runs: pl.DataFrame, found: Mapping[str, NDArray[Any]], skip: int) -> pl.DataFrame:
    """Return mean and deviation over orders of what was found of each run after each epoch.

    ``found`` holds shares (epochs,) by the run's digest; the first is that after ``skip`` tasks.
    """
    runs = runs.filter(pl.col("digest").is_in(list(found)))
    rows = (
        row
        for what, part in runs.group_by(*WHAT, "n_tasks", "epochs")
        for row in _points(what, np.stack([found[digest] for digest in part["digest"]]), skip)
    )
    return in_order(rows_as(CURVE, rows), "kind", *STREAM, *HEAD, "learned")


def _points(
    what: tuple[Any, ...], accuracy: NDArray[np.float64], skip: int
) -> Iterator[tuple[Any, ...]]:
    *names, n_tasks, epochs = what
    step = 1 if n_tasks * epochs < MOST_POINTS else epochs
    for column in range(0, accuracy.shape[1], step):
        known = accuracy[~np.isnan(accuracy[:, column]), column] * 100
        task, epoch = divmod(column + skip * epochs, epochs)
        mean = known.mean() if len(known) else None
        spread = known.std() if len(known) > 1 else None
        yield (*names, n_tasks, task, epoch, task + epoch / epochs, mean, spread, len(known))


def section(tables: Tables) -> Section | None:
    """Show how accuracy develops, task after task."""
    caption = (
        "Accuracy on the whole test set, mean and deviation over orders of the tasks. Vertical "
        "lines: a task ends and the next begins. The buttons switch heads off and on."
        + cited("Fig. 4", tables["accuracy"])
    )
    return Section(
        "accuracy",
        "Accuracy while learning",
        [TEXT, *_asked_seldom(tables["curves"])],
        over_time("accuracy", tables["curves"], AXIS, caption),
        [_table(title, part) for title, part in by_stream(tables["accuracy"])],
    )


def _asked_seldom(curves: pl.DataFrame) -> list[str]:
    """Say which heads did not answer after every task."""
    ends = curves.filter(pl.col("epoch") == 0, pl.col("task") > 0)
    said = []
    for title, part in by_stream(ends):
        counts = part.group_by("name", maintain_order=True).agg(pl.col("mean").count(), pl.len())
        for (asked, tasks), some in counts.filter(pl.col("mean") < pl.col("len")).group_by(
            "mean", "len", maintain_order=True
        ):
            heads = ", ".join(sorted(some["name"], key=place_of))
            said.append(
                f"{title}: slow to answer, so asked {asked} times in {tasks} tasks: {heads}. "
                "Measures that need an answer after every task are left out."
            )
    return said


TOPIC = Topic(section, needs=[ACCURACY], also=[CURVES])


def over_time(name: str, table: pl.DataFrame, y: str, caption: str) -> list[Panel]:
    """Draw the accuracy on each stream over the tasks learned; nothing where there is none."""
    table = table.drop_nulls("mean")
    heads = heads_of(table)
    hidden = hidden_of(heads)
    figures = [
        Figure((name, title), title, *_chart(part, y, hidden)) for title, part in by_stream(table)
    ]
    return [Panel(caption, figures, heads, hidden)] if figures else []


def _chart(part: pl.DataFrame, y: str, hidden: list[str]) -> Plot:
    """Draw lines over the tasks learned, with a rule where one task follows another."""
    tasks, first = int(part["n_tasks"][0]), int(part["learned"][0])
    every = max(1, tasks // 25)
    ends = list(range(first, tasks + 1, every))
    axis = alt.Axis(values=ends, format="d", grid=True, gridColor="#bbb", gridDash=[2, 2])
    whole = alt.Scale(domain=[first, tasks], nice=False)
    x = alt.X("learned:Q", title="tasks learned", axis=axis, scale=whole)
    tooltip = told(("name:N", "head"), ("learned:Q", "tasks learned"))
    end = (pl.col("epoch") == 0) & (pl.col("task") % every == 0)
    part = part.with_columns(end.alias("end"))
    return lines(part, x, "learned", tooltip, hidden=hidden, y=y)


def _table(title: str, part: pl.DataFrame) -> Table:
    first = part.row(0, named=True)
    present = [name for name in MEASURES if part[name].count()]
    rows = [
        [words(row["name"]), short(row["lr"]),
         spread(row["mean"], row["deviation"],
                f" ({row['diverged']} diverged)" if row["diverged"] else ""),
         *(number(row[name]) for name in present), number(row["runs"], digits=0)]
        for row in part.iter_rows(named=True)
    ]  # fmt: skip
    caption = (
        f"{title}: {first['n_classes']} classes, {first['n_tasks']} tasks, preset "
        f"{first['preset']}; mean ± deviation over orders."
    )
    header = ("head", "learning rate", "final accuracy, %", *(MEASURES[m] for m in present), "runs")
    return Table(("accuracy", title), caption, header, rows)


def first_task_section(tables: Tables) -> Section | None:
    """Show the accuracy on the first task since it was learned."""
    table = tables["first_task"].drop_nulls("mean")
    if table.is_empty():
        return None
    caption = (
        "Accuracy on the test data of the task that came first, mean and deviation over orders."
    )
    return Section(
        "first-task",
        "How the first task is forgotten",
        ["In lifelong streams all classes stay, and their surroundings change: nothing has to be "
         "forgotten. Streams whose test data belong to no task are left out."],
        over_time("first-task", table, FIRST_AXIS, caption),
        [_first_task_table(title, part) for title, part in by_stream(table)],
    )  # fmt: skip


FIRST_TASK = Topic(first_task_section, needs=[FIRST_TASK_CURVES])


def _first_task_table(title: str, part: pl.DataFrame) -> Table:
    rows = []
    for name in heads_of(part):
        mine = part.filter(name=name)
        first, last = mine.row(0, named=True), mine.row(-1, named=True)
        ends = (mean_of(row) for row in (first, last))
        forgotten = number(first["mean"] - last["mean"])
        rows.append([words(name), *ends, forgotten, number(last["runs"], digits=0)])
    header = ("head", "when learned, %", "at the end, %", "forgotten, points", "runs")
    caption = f"{title}: accuracy on the first task."
    return Table(("first-task", title), caption, header, rows)
