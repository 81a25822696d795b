"""What one task changes about the weight of the linear layer, with and without a mask (Fig. 2)."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import class_norms, weight_change
from lastlayer.report.axes import class_axis, names_of, with_name, worst
from lastlayer.report.chart import DATA, sized
from lastlayer.report.published import cited
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream, rows_of
from lastlayer.report.select import HEAD, STREAM, class_names, in_order, order_0
from lastlayer.report.sheet import Sheet, integers, numbers, rows_as, texts
from lastlayer.results import Study

TASK = 45  # the task that the paper's figure 2 shows, where there are as many
DIMENSIONS = 50
CLASSES = 50  # of a table, at most: those that change most
WHAT = (*STREAM, "kind", *HEAD, "name")
COLUMNS = (
    texts(*WHAT)
    | integers("task", "class")
    | texts("class_name")
    | integers("dimension")
    | numbers("change")
)


def weight_changes(study: Study) -> pl.DataFrame:
    """Return what one task changes about the weight of the linear layer, without and with a mask.

    The stream is a mixed one where there is one, else an incremental one; order 0.
    """
    runs = order_0(study).filter(
        pl.col("kind").is_in(["mixed", "incremental"]),
        pl.col("mask").is_in(["none", "single"]),
        head="linear",
    )
    weights = study.arrays("weight", runs)
    runs = runs.filter(pl.col("digest").is_in(list(weights)))
    runs = runs.filter(pl.col("kind") == pl.col("kind").max())  # "mixed" comes after
    rows = (row for run in runs.iter_rows(named=True) for row in _changes(study, run, weights))
    return in_order(rows_as(COLUMNS, rows), *STREAM, "mask", "class", "dimension")


SHEET = Sheet("weight_changes", COLUMNS, weight_changes)


def _changes(
    study: Study, run: dict[str, Any], weights: dict[str, NDArray[Any]]
) -> Iterator[tuple[Any, ...]]:
    weight = weights[run["digest"]]
    task = min(TASK, len(weight) - 1)
    change = weight_change(weight[task - 1], weight[task])
    most = np.sort(np.argsort(-class_norms(change), kind="stable")[:CLASSES])
    names = class_names(study, run)
    for c in most.tolist():
        for dimension, value in enumerate(change[c, :DIMENSIONS].tolist()):
            yield (*(run[name] for name in WHAT), task + 1, *names[c], dimension, value)


def section(tables: Tables) -> Section | None:
    """Show class by dimension what was changed; masking leaves the rows of other classes alone."""
    table = tables["weight_changes"]
    if table.is_empty():
        return None
    figures = [
        Figure(("weight-change", title, str(mask)), _title(title, part), *_chart(part))
        for title, stream in by_stream(table)
        for (mask,), part in stream.group_by("mask", maintain_order=True)
    ]
    caption = (
        "Weights of the linear layer after one task minus before it, first 50 dimensions, order 0; "
        "each map has its own scale. Only the classes of the task should change. Of many classes "
        "those that change most are shown." + cited("Fig. 2", table)
    )
    return Section(
        "weight-change", "What one task changes", _words(table), [Panel(caption, figures)]
    )


TOPIC = Topic(section, needs=[SHEET])


def _words(table: pl.DataFrame) -> list[str]:
    """Say which row a mask lets move most: the paper says that masked rows cannot change."""
    length = (pl.col("change") ** 2).sum().sqrt().alias("length")
    masked = table.filter(pl.col("mask") != "none")
    moved = masked.group_by("class_name", maintain_order=True).agg(length).sort("length")
    if moved.is_empty():
        return []
    name, most = moved.row(-1)
    return [
        f"Under single masking the row of {name} moves most, by {most:.4f} in these dimensions. A "
        "row whose class the task lacks gets no gradient, yet moves by the velocity that "
        "momentum has kept since its class was last seen"
        + ("; the paper says that it cannot." if cited("Fig. 2", table) else ".")
    ]


def _title(title: str, part: pl.DataFrame) -> str:
    mask = part["mask"][0]
    masking = "no masking" if mask == "none" else f"{mask} masking"
    return f"{title}, task {part['task'][0]}: {masking}"


def _chart(part: pl.DataFrame) -> Plot:
    length = part.group_by("class").agg((pl.col("change") ** 2).sum())
    part = part.filter(pl.col("class").is_in(worst(dict(length.rows()))))
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
