"""How the first task is forgotten in lifelong streams (appendix)."""

import polars as pl

from lastlayer.report.chart import heads_of, hidden_of
from lastlayer.report.section import Figure, Panel, Row, Section, Tables, by_stream, file_name
from lastlayer.report.sections.streams import over_time
from lastlayer.report.shown import Cell, Table, number, spread, words

AXIS = "accuracy on the first task, %"


def first_task(tables: Tables) -> Section | None:
    """Show the accuracy on the first task since it was learned."""
    table = tables["first_task"].drop_nulls("mean")
    if table.is_empty():
        return None
    heads = heads_of(table)
    hidden = hidden_of(heads)
    figures = [
        Figure(file_name("first-task", title), title, *over_time(part, AXIS, hidden))
        for title, part in by_stream(table)
    ]
    caption = (
        "Accuracy on the test data of the task that came first, mean and deviation over orders."
    )
    return Section(
        "first-task",
        "How the first task is forgotten",
        ["In lifelong streams all classes stay, and their surroundings change: nothing has to be "
         "forgotten. Streams whose test data belong to no task are left out."],
        [Panel(caption, figures, heads, hidden)],
        [_table(title, part) for title, part in by_stream(table)],
    )  # fmt: skip


def _table(title: str, part: pl.DataFrame) -> Table:
    rows = []
    for name in heads_of(part):
        mine = part.filter(name=name)
        first, last = mine.row(0, named=True), mine.row(-1, named=True)
        rows.append(_row(name, first, last))
    header = ("head", "when learned, %", "at the end, %", "forgotten, points", "runs")
    caption = f"{title}: accuracy on the first task."
    return Table(file_name("first-task", title), caption, header, rows)


def _row(name: str, first: Row, last: Row) -> list[Cell]:
    return [
        words(name),
        spread(first["mean"], first["deviation"]),
        spread(last["mean"], last["deviation"]),
        number(first["mean"] - last["mean"]),
        number(last["runs"], digits=0),
    ]
