"""How the first task is forgotten in lifelong streams (appendix)."""

import polars as pl

from lastlayer.analysis import accuracy_since_learned, share
from lastlayer.report.chart import heads_of
from lastlayer.report.section import Section, Tables, Topic, by_stream
from lastlayer.report.select import streams
from lastlayer.report.sheet import Sheet
from lastlayer.report.shown import Table, number, spread, words
from lastlayer.report.topics.streams import CURVE, as_curves, over_time
from lastlayer.results import Study

AXIS = "accuracy on the first task, %"


def first_task(study: Study) -> pl.DataFrame:
    """Return the accuracy on the first task since it was learned, in lifelong streams."""
    runs = streams(study).filter(pl.col("diverged").is_null(), kind="lifelong")
    arrays = (study.arrays(name, runs) for name in ("right_by_task", "n_per_task", "task_order"))
    right, sizes, orders = arrays
    found = {
        digest: accuracy_since_learned(share(right[digest], sizes[digest]), order.tolist())
        for digest, order in orders.items()
        if len(sizes[digest])  # else no test data belong to a task
    }
    return as_curves(runs, found, skip=1)


SHEET = Sheet("first_task", CURVE, first_task)


def section(tables: Tables) -> Section | None:
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
        over_time("first-task", table, AXIS, caption),
        [_table(title, part) for title, part in by_stream(table)],
    )  # fmt: skip


TOPIC = Topic(section, needs=[SHEET])


def _table(title: str, part: pl.DataFrame) -> Table:
    rows = []
    for name in heads_of(part):
        mine = part.filter(name=name)
        first, last = mine.row(0, named=True), mine.row(-1, named=True)
        ends = (spread(row["mean"], row["deviation"]) for row in (first, last))
        forgotten = number(first["mean"] - last["mean"])
        rows.append([words(name), *ends, forgotten, number(last["runs"], digits=0)])
    header = ("head", "when learned, %", "at the end, %", "forgotten, points", "runs")
    caption = f"{title}: accuracy on the first task."
    return Table(("first-task", title), caption, header, rows)
