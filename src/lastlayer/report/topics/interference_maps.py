"""The three maps of interference for linear and weight_norm, and the riskiest pairs (Fig. 3)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import angles_between, interference_risk, largest_risk, riskiest_pairs
from lastlayer.report.charts import DATA, class_axis, names_of, sized, with_name, worst
from lastlayer.report.data_names import cited
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream, rows_of
from lastlayer.report.select import HEAD, STREAM, WHAT, class_names, in_order, order_0
from lastlayer.report.sheet import Sheet, integers, numbers, rows_as, texts
from lastlayer.report.table import Table, number, words
from lastlayer.results import Study

CLASSES = 50  # of a table, at most: those in the greatest danger
PAIRS = 10
PAIR = integers("class") | texts("class_name") | integers("vector") | texts("vector_name")
Scheme = Literal["viridis", "oranges"]
MAPS: Mapping[str, tuple[str, Scheme]] = {  # column → title, colours from low to high
    "between": ("angle between vectors, °", "viridis"),
    "to_data": ("angle of data to vectors, °", "viridis"),
    "risk": ("interference risk", "oranges"),
}
MAP = texts(*WHAT) | PAIR | numbers(*MAPS)
RISKIEST = texts(*WHAT) | PAIR | numbers("risk", "own_angle", "wrong_angle")


@dataclass(frozen=True, eq=False)
class Maps:
    """What is known of a run after its last task, class by class."""

    run: dict[str, Any]
    names: Sequence[tuple[int, str]]
    between: NDArray[Any]  # (classes, classes), all of them
    to_data: NDArray[Any]
    risk: NDArray[Any]

    def row(self, c: int, i: int, *values: float) -> tuple[Any, ...]:
        """Return a row of a sheet about the data of class c and the vector of class i."""
        finite = (float(value) if np.isfinite(value) else None for value in values)
        return *(self.run[name] for name in WHAT), *self.names[c], *self.names[i], *finite


def maps(study: Study) -> pl.DataFrame:
    """Return for pairs of classes the angle of vectors, of data to vectors, and the risk."""
    rows: list[tuple[Any, ...]] = []
    for parts in _streams(study):
        danger = np.nanmax([largest_risk(part.risk) for part in parts], axis=0, initial=0)
        chosen = np.sort(np.argsort(-danger, kind="stable")[:CLASSES]).tolist()
        rows += [
            part.row(c, i, part.between[c, i], part.to_data[c, i], part.risk[c, i])
            for part in parts
            for c in chosen
            for i in chosen
        ]
    return in_order(rows_as(MAP, rows), "kind", *STREAM, *HEAD, "class", "vector")


def pairs(study: Study) -> pl.DataFrame:
    """Return the riskiest pairs of each head, the riskiest first, of all classes."""
    rows = (
        part.row(c, i, risk, part.to_data[c, c], part.to_data[c, i])
        for parts in _streams(study)
        for part in parts
        for c, i, risk in riskiest_pairs(part.risk, PAIRS)
    )
    return in_order(rows_as(RISKIEST, rows), "kind", *STREAM, *HEAD)


SHEET = Sheet("interference", MAP, maps)
RISKIEST_PAIRS = Sheet("riskiest_pairs", RISKIEST, pairs)


def _streams(study: Study) -> Iterator[list[Maps]]:
    """Return the maps of linear and weight_norm after the last task of order 0, by stream."""
    runs = order_0(study).filter(pl.col("head").is_in(["linear", "weight_norm"]), mask="none")
    angles, weights = (study.arrays(name, runs) for name in ("data_angles", "weight"))
    found: dict[tuple[Any, ...], list[Maps]] = {}
    for run in runs.iter_rows(named=True):
        if run["digest"] in angles:
            to_data = angles[run["digest"]][-1].astype(np.float64)
            between = angles_between(weights[run["digest"]][-1])
            names = class_names(study, run)
            part = Maps(run, names, between, to_data, interference_risk(to_data))
            found.setdefault(tuple(run[name] for name in STREAM), []).append(part)
    yield from found.values()


def section(tables: Tables) -> Section | None:
    """Show which wrong output vectors lie close to whose data."""
    table = tables["interference"]
    panels = [
        Panel(
            f"{title}: output vectors after the last task, order 0. Rows are the classes of the "
            f"data, columns those of the vectors{_many(part, n_classes)}" + cited("Fig. 3", part),
            [
                Figure(
                    ("interference", title, str(name), column),
                    f"{name}: {words}",
                    *_map(one, column, part[column]),
                    square=True,
                )
                for (name,), one in part.group_by("name", maintain_order=True)
                for column, (words, _) in MAPS.items()
            ],
            small=True,
        )
        for title, part, n_classes in (
            (title, _in_danger(whole), whole["class"].n_unique())
            for title, whole in by_stream(table)
        )
    ]
    said = (
        "The risk of class c from vector i is mean∠(z_c, A_c) / mean∠(z_c, A_i), over test "
        "samples: 1 on the diagonal, above 1 (marked with a dot) where a wrong vector is closer to "
        "the data than their own."
    )
    text = [said, *_of_figure_3(table)]
    shown = [_pairs(title, part) for title, part in by_stream(tables["riskiest_pairs"])]
    return Section("interference", "Interference between classes", text, panels, shown)


TOPIC = Topic(section, needs=[SHEET], also=[RISKIEST_PAIRS])


def _of_figure_3(table: pl.DataFrame) -> list[str]:
    """Put what the paper reads from its figure 3 beside our numbers, where its data are here."""
    mine = table.filter(scenario="cifar10", features="cifar10/resnet20-cifar100", name="linear")
    risks = {i: risk for c, i, risk in mine.select("class", "vector", "risk").rows() if c == 4}
    if any(risks.get(i) is None for i in (1, 3)):
        return []
    most = max((i for i in risks if i != 4 and risks[i] is not None), key=lambda i: risks[i])
    return [
        "The paper reads from its Fig. 3 that class 4 is in danger from 1 and 3. Here, in order 0, "
        f"its risks from them are {risks[1]:.2f} and {risks[3]:.2f}; the greatest is that from "
        f"{most}, {risks[most]:.2f}."
    ]


def _in_danger(part: pl.DataFrame) -> pl.DataFrame:
    """Keep the classes whose names can be read: of many those in the greatest danger."""
    others = part.filter(pl.col("class") != pl.col("vector"))
    danger = others.group_by("class").agg(pl.col("risk").max().fill_null(0.0))
    chosen = worst(dict.fromkeys(part["class"].to_list(), 0.0) | dict(danger.rows()))
    return part.filter(pl.col("class").is_in(chosen), pl.col("vector").is_in(chosen))


def _many(part: pl.DataFrame, n_classes: int) -> str:
    shown = part["class"].n_unique()
    return f"; the {shown} classes in the greatest danger." if shown < n_classes else "."


def _map(part: pl.DataFrame, column: str, of_all: pl.Series) -> Plot:
    title, scheme = MAPS[column]
    values = of_all.drop_nulls().to_list()  # all heads share a scale
    ends = [min(values, default=0.0), max(values, default=1.0)]
    names = names_of(part)
    named = with_name(alt.Chart(DATA), names, "class", "class_name")
    base = with_name(named, names, "vector", "vector_name").encode(
        x=alt.X("vector:O", title="vector of class", axis=class_axis(names, angle=-60)),
        y=alt.Y("class:O", title="data of class", axis=class_axis(names)),
    )
    legend = alt.Legend(title=None, orient="top", gradientLength=110, gradientThickness=8)
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
    return Table(("riskiest-pairs", title), caption, header, rows)
