"""Accuracy over time on each stream (Fig. 4), and the continual measures at the end."""

import altair as alt
import polars as pl

from lastlayer.report.chart import heads_of, hidden_of, sized, told, with_band
from lastlayer.report.lines import lines
from lastlayer.report.section import (
    Figure,
    Panel,
    Plot,
    Row,
    Section,
    Tables,
    by_stream,
    file_name,
    rows_of,
)
from lastlayer.report.shown import Cell, Table, number, short, spread, words

FIELDS = ("head", "mask", "name", "learned", "mean", "deviation", "low", "high", "runs", "end")
AXIS = "accuracy on all tasks, %"
MEASURES = {
    "average": "average accuracy while learning, %",
    "forgetting": "forgetting, points",
    "backward_transfer": "backward transfer",
    "forward_transfer": "forward transfer",
}


def streams(tables: Tables) -> Section | None:
    """Show how accuracy develops, task after task."""
    if tables["accuracy"].is_empty():
        return None
    table = tables["curves"].drop_nulls("mean")
    heads = heads_of(table)
    hidden = hidden_of(heads)
    figures = [
        Figure(file_name("accuracy", title), title, *over_time(part, AXIS, hidden))
        for title, part in by_stream(table)
    ]
    caption = (
        "Accuracy on the whole test set, mean and deviation over orders of the tasks. Vertical "
        "lines: a task ends and the next begins. The buttons switch heads off and on. (Fig. 4)"
    )
    return Section(
        "accuracy",
        "Accuracy while learning",
        ["Each head learns the tasks of a stream one after the other and never sees a task again."],
        [Panel(caption, figures, heads, hidden)] if figures else [],
        [_table(title, part) for title, part in by_stream(tables["accuracy"])],
    )


def over_time(part: pl.DataFrame, y: str, hidden: list[str]) -> Plot:
    """Draw accuracy over the tasks learned, with a line where one task follows another."""
    tasks, first = int(part["n_tasks"][0]), int(part["learned"][0])
    every = max(1, tasks // 25)
    ends = list(range(first, tasks + 1, every))
    axis = alt.Axis(values=ends, format="d", grid=True, gridColor="#bbb", gridDash=[2, 2])
    whole = alt.Scale(domain=[first, tasks], nice=False)
    x = alt.X("learned:Q", title="tasks learned", axis=axis, scale=whole)
    tooltip = told(("name:N", "head"), ("learned:Q", "tasks learned"))
    end = (pl.col("epoch") == 0) & (pl.col("task") % every == 0)
    rows = rows_of(with_band(part).with_columns(end.alias("end")), *FIELDS)
    return sized(lines(x, heads_of(part), hidden, tooltip, y)), rows


def _table(title: str, part: pl.DataFrame) -> Table:
    first = part.row(0, named=True)
    present = [name for name in MEASURES if part[name].count()]
    rows = [_row(row, present) for row in part.iter_rows(named=True)]
    caption = (
        f"{title}: {first['n_classes']} classes, {first['n_tasks']} tasks, preset "
        f"{first['preset']}; mean ± deviation over orders."
    )
    header = ("head", "learning rate", "final accuracy, %", *(MEASURES[m] for m in present), "runs")
    return Table(file_name("accuracy", title), caption, header, rows)


def _row(row: Row, present: list[str]) -> list[Cell]:
    note = f" ({row['diverged']} diverged)" if row["diverged"] else ""
    return [
        words(str(row["name"])),
        short(row["lr"]),
        spread(row["mean"], row["deviation"], note),
        *(number(row[name]) for name in present),
        number(row["runs"], digits=0),
    ]
