"""What one task changes about the weight of the linear layer, with and without a mask (Fig. 2)."""

import altair as alt
import polars as pl

from lastlayer.report.axes import class_axis, names_of, with_name
from lastlayer.report.chart import DATA, sized
from lastlayer.report.section import (
    Figure,
    Panel,
    Plot,
    Section,
    Tables,
    by_stream,
    file_name,
    rows_of,
)
from lastlayer.report.tables.vectors import DIMENSIONS


def weights(tables: Tables) -> Section | None:
    """Show class by dimension what was changed; masking leaves the rows of other classes alone."""
    table = tables["weight_changes"]
    if table.is_empty():
        return None
    figures = [
        Figure(file_name("weight-change", title, str(mask)), _title(title, part), *_chart(part))
        for title, stream in by_stream(table)
        for (mask,), part in stream.group_by("mask", maintain_order=True)
    ]
    caption = (
        "Weights of the linear layer after one task minus before it, first 50 dimensions, order 0; "
        "each map has its own scale. Only the classes of the task should change. Of many classes "
        "those that change most are shown. (Fig. 2)"
    )
    return Section("weight-change", "What one task changes", (), [Panel(caption, figures)])


def _title(title: str, part: pl.DataFrame) -> str:
    mask = part["mask"][0]
    masking = "no masking" if mask == "none" else f"{mask} masking"
    return f"{title}, task {part['task'][0]}: {masking}"


def _chart(part: pl.DataFrame) -> Plot:
    names = names_of(part)
    most = part["change"].abs().to_numpy().max(initial=0) or 1.0
    scale = alt.Scale(scheme="purpleorange", reverse=True, domain=[-most, most])
    dimensions = alt.Axis(values=list(range(0, DIMENSIONS, 10)), labelAngle=0)
    chart = with_name(alt.Chart(DATA), names, "class", "class_name").mark_rect().encode(
        x=alt.X("dimension:O", title="dimension", axis=dimensions),
        y=alt.Y("class:O", title="class", axis=class_axis(names)),
        color=alt.Color("change:Q", scale=scale, title="change"),
        tooltip=[alt.Tooltip("class_name:N", title="class"), "dimension:O", "change:Q"],
    )  # fmt: skip
    rows = rows_of(part, "class", "dimension", "change")
    return sized(chart, height=min(420, max(120, 14 * len(names)))), rows
