"""The three maps of interference for linear and weight_norm, and the riskiest pairs (Fig. 3)."""

from collections.abc import Mapping
from typing import Literal

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
from lastlayer.report.shown import Table, number, words
from lastlayer.report.tables.interference import CLASSES

MAPS: Mapping[
    str, tuple[str, Literal["viridis", "oranges"]]
] = {  # column → title, colours from low to high
    "between": ("angle between vectors, °", "viridis"),
    "to_data": ("angle of data to vectors, °", "viridis"),
    "risk": ("interference risk", "oranges"),
}


def interference(tables: Tables) -> Section | None:
    """Show which wrong output vectors lie close to whose data."""
    table = tables["interference"]
    if table.is_empty():
        return None
    panels = [
        Panel(
            f"{title}: output vectors after the last task, order 0. Rows are the classes of the "
            f"data, columns those of the vectors{_many(part)} (Fig. 3)",
            [
                Figure(
                    file_name("interference", title, str(name), column),
                    f"{name}: {words}",
                    *_map(one, column, _range(part, column)),
                    square=True,
                )
                for (name,), one in part.group_by("name", maintain_order=True)
                for column, (words, _) in MAPS.items()
            ],
            small=True,
        )
        for title, part in by_stream(table)
    ]
    text = (
        "The risk of class c from vector i is mean∠(z_c, A_c) / mean∠(z_c, A_i), over test "
        "samples: 1 on the diagonal, above 1 (marked with a dot) where a wrong vector is closer to "
        "the data than their own."
    )
    shown = [_pairs(title, part) for title, part in by_stream(tables["riskiest_pairs"])]
    return Section("interference", "Interference between classes", [text], panels, shown)


def _many(part: pl.DataFrame) -> str:
    classes = part["class"].n_unique()
    return f"; the {classes} classes in the greatest danger." if classes == CLASSES else "."


def _range(part: pl.DataFrame, column: str) -> list[float]:
    """Give the ends of a scale that both heads share."""
    values = part[column].drop_nulls().to_list()
    return [min(values, default=0.0), max(values, default=1.0)]


def _map(part: pl.DataFrame, column: str, ends: list[float]) -> Plot:
    title, scheme = MAPS[column]
    names = names_of(part)
    named = with_name(alt.Chart(DATA), names, "class", "class_name")
    base = with_name(named, names, "vector", "vector_name").encode(
        x=alt.X("vector:O", title="vector of class", axis=class_axis(names, angle=-60)),
        y=alt.Y("class:O", title="data of class", axis=class_axis(names)),
    )
    legend = alt.Legend(title=None, orient="top", gradientLength=160, gradientThickness=8)
    colour = alt.Color(f"{column}:Q", scale=alt.Scale(scheme=scheme, domain=ends), legend=legend)
    told = [
        alt.Tooltip("class_name:N", title="data of class"),
        alt.Tooltip("vector_name:N", title="vector of class"),
        alt.Tooltip(f"{column}:Q", title=title),
    ]
    layers = [base.mark_rect().encode(color=colour, tooltip=told)]
    if column == "risk":
        size = max(1, 90 / len(names))
        dot = base.mark_point(filled=True, color="black", size=size, tooltip=None, opacity=1)
        layers.append(dot.transform_filter("datum.risk > 1"))
    rows = rows_of(part.drop_nulls(column), "class", "vector", column)
    return sized(alt.layer(*layers), height=260, width=260), rows


def _pairs(title: str, part: pl.DataFrame) -> Table:
    rows = [
        [words(row["name"]), words(row["class_name"]), words(row["vector_name"]),
         number(row["risk"], digits=3), number(row["own_angle"]), number(row["wrong_angle"])]
        for row in part.iter_rows(named=True)
    ]  # fmt: skip
    angles = ("angle to its own vector, °", "to the wrong one, °")
    header = ("head", "data of", "in danger from", "risk", *angles)
    caption = f"{title}: the riskiest pairs of classes."
    return Table(file_name("riskiest-pairs", title), caption, header, rows)
