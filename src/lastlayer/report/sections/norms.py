"""Norm and bias of the linear layer at the end (Fig. 1)."""

import altair as alt
import polars as pl

from lastlayer.report.axes import class_axis, names_of
from lastlayer.report.chart import DATA, layer_scale, sized
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

MEASURES = {
    "norm": "norm at the end",
    "bias": "bias at the end",
    "bias_change": "change of the bias, last task",
}
AGE = {0: "the last task", 1: "the task before", None: "earlier"}


def norms(tables: Tables) -> Section | None:
    """Show which classes of a stream are favoured, whatever the data."""
    table = tables["norms"]
    if table.is_empty():
        return None
    panels = [
        Panel(
            f"{title}: the linear layer after the last task, order 0.{_ages(part)} (Fig. 1)",
            [
                Figure(file_name("norms", measure, title), words, *_chart(part, measure, words))
                for measure, words in MEASURES.items()
                if part[measure].count()
            ],
            small=True,
        )
        for title, part in by_stream(table)
    ]
    text = (
        "A class whose output vector is longer, or whose bias is higher, wins more often whatever "
        "the data: after new classes were learned, mostly the last ones."
    )
    return Section("norms", "Norm and bias of the linear layer", [text], panels)


def _ages(part: pl.DataFrame) -> str:
    known = part["tasks_ago"].count()
    dark = " The darkest bars are classes of the last task, then those of the task before."
    return dark if known else ""


def _chart(part: pl.DataFrame, measure: str, words: str) -> Plot:
    known = part.drop_nulls(measure)
    ages = {0: AGE[0], 1: AGE[1]}
    age = pl.col("tasks_ago").replace_strict(ages, default=AGE[None], return_dtype=pl.String)
    together = part["tasks_ago"].count() == 0  # classes did not come one task after another
    fade = alt.Scale(
        type="ordinal", domain=list(AGE.values()), range=[1, 0.55, 1 if together else 0.25]
    )
    told = [alt.Tooltip("class_name:N", title="class"), alt.Tooltip(f"{measure}:Q", title=words)]
    chart = alt.Chart(DATA).mark_bar().encode(
        x=alt.X("class:O", title="class", axis=class_axis(names_of(part), angle=-60)),
        y=alt.Y(f"{measure}:Q", title=words),
        color=alt.Color("head:N", scale=layer_scale(), legend=None),
        opacity=alt.Opacity("learned:O", scale=fade, legend=None),
        tooltip=told if together else [*told, alt.Tooltip("learned:N", title="learned in")],
    )  # fmt: skip
    fields = ("head", "class", "class_name", measure, "learned")
    return sized(chart, height=200), rows_of(known.with_columns(age.alias("learned")), *fields)
