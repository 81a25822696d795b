"""What a stream does to the linear layer: its norms and biases at the end, and one task's changes.

Norms and biases are those of the paper's Fig. 1, the changes of the weight those of its Fig. 2.
"""

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import bias_change, class_norms, weight_change
from lastlayer.report.charts import DATA, FEW, WORST, class_axis, names_of, sized, with_name, worst
from lastlayer.report.data_names import cited
from lastlayer.report.looks import layer_scale
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream, rows_of
from lastlayer.report.select import STREAM, WHAT, class_names, in_order, order_0
from lastlayer.report.sheet import Sheet, integers, numbers, rows_as, texts
from lastlayer.results import Study

TASK = 45  # the task that the paper's figure 2 shows, where there are as many
DIMENSIONS = 50
CLASSES = 50  # of a table, at most: those that change most
NORM = (
    texts(*WHAT) | integers("class") | texts("class_name") | integers("tasks_ago")
    | numbers("norm", "bias", "bias_change")
)  # fmt: skip
CHANGE = (
    texts(*WHAT) | integers("task", "class") | texts("class_name") | integers("dimension")
    | numbers("change")
)  # fmt: skip
MEASURES = {
    "norm": "norm at the end",
    "bias": "bias at the end",
    "bias_change": "change of the bias, last task",
}
AGE = {0: "the last task", 1: "the task before", None: "earlier"}


def norms(study: Study) -> pl.DataFrame:
    """Return norm and bias of each class at the end, and what the last task changed; order 0."""
    runs = order_0(study).filter(head="linear", mask="none")
    names = ("norm", "bias", "task_order")
    arrays = {name: study.arrays(name, runs) for name in names}
    arrived = study.arrays("arrived", runs)
    rows: list[tuple[Any, ...]] = []
    for run in runs.filter(pl.col("digest").is_in(list(arrays["norm"]))).iter_rows(named=True):
        norm, bias, order = (arrays[name][run["digest"]] for name in names)
        came = arrived.get(run["digest"]) if run["kind"] == "incremental" else None
        ago = [None] * len(norm[-1]) if came is None else _ago(came, len(order))
        change = bias_change(bias[-2], bias[-1])
        values = zip(ago, *(_plain(a) for a in (norm[-1], bias[-1], change)), strict=True)
        rows += [
            (*(run[name] for name in WHAT), *named, *each)
            for named, each in zip(class_names(study, run), values, strict=True)
        ]
    return in_order(rows_as(NORM, rows), "kind", *STREAM, "class")


NORMS = Sheet("norms", NORM, norms)


def _ago(came: NDArray[Any], n_tasks: int) -> list[int | None]:
    """Count the tasks since each class came; one that never came has none."""
    return [n_tasks - 1 - task if task >= 0 else None for task in came.tolist()]


def _plain(values: NDArray[Any]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def norms_section(tables: Tables) -> Section | None:
    """Show which classes of a stream are favoured, whatever the data."""
    table = tables["norms"]
    panels = [
        Panel(
            f"{title}: the linear layer after the last task, order 0.{_ages(part)}"
            + cited("Fig. 1", part),
            [
                Figure(
                    ("norms", measure, title),
                    f"{words}{_some(part)}",
                    *_norm_chart(part, measure, words),
                )
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


NORMS_TOPIC = Topic(norms_section, needs=[NORMS])


def _some(part: pl.DataFrame) -> str:
    """Say in a title which classes are shown, where not all are."""
    n = part.height
    return f": of {n} classes the {WORST} farthest from the median" if n > FEW else ""


def _ages(part: pl.DataFrame) -> str:
    known = part["tasks_ago"].count()
    dark = " The darkest bars are classes of the last task, then those of the task before."
    return dark if known else ""


def _norm_chart(part: pl.DataFrame, measure: str, words: str) -> Plot:
    known = part.drop_nulls(measure)
    usual = known[measure].median()
    far = {row["class"]: abs(row[measure] - usual) for row in known.iter_rows(named=True)}
    many = len(worst(far)) < known.height
    known = known.filter(pl.col("class").is_in(worst(far)))
    ages = {0: AGE[0], 1: AGE[1]}
    age = pl.col("tasks_ago").replace_strict(ages, default=AGE[None], return_dtype=pl.String)
    together = part["tasks_ago"].count() == 0  # classes did not come one task after another
    fade = alt.Scale(
        type="ordinal", domain=list(AGE.values()), range=[1, 0.55, 1 if together else 0.25]
    )
    told = [alt.Tooltip("class_name:N", title="class"), alt.Tooltip(f"{measure}:Q", title=words)]
    named = class_axis(names_of(known), angle=0 if many else -60)
    chart = alt.Chart(DATA).mark_bar().encode(
        **_places(measure, words, named, many),
        color=alt.Color("head:N", scale=layer_scale(part["head"].to_list()), legend=None),
        opacity=alt.Opacity("learned:O", scale=fade, legend=None),
        tooltip=told if together else [*told, alt.Tooltip("learned:N", title="learned in")],
    )  # fmt: skip
    fields = ("head", "class", "class_name", measure, "learned")
    return sized(chart, height=16 * WORST if many else 200), rows_of(
        known.with_columns(age.alias("learned")), *fields
    )


def _places(measure: str, words: str, named: alt.Axis, many: bool) -> dict[str, alt.X | alt.Y]:
    """Lay classes out side by side, or, of many, some one below the other, sorted."""
    value = f"{measure}:Q"
    if many:
        # Beside long names there is little room for a title, and a reader's font may be a wide one:
        # it ends where the bars do, and may begin below the names.
        y = alt.Y("class:O", title=None, sort="-x", axis=named)
        return {"x": alt.X(value, title=words, axis=alt.Axis(titleAnchor="end")), "y": y}
    return {"x": alt.X("class:O", title="class", axis=named), "y": alt.Y(value, title=words)}


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
    return in_order(rows_as(CHANGE, rows), *STREAM, "mask", "class", "dimension")


CHANGES = Sheet("weight_changes", CHANGE, weight_changes)


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


def changes_section(tables: Tables) -> Section | None:
    """Show class by dimension what was changed; masking leaves the rows of other classes alone."""
    table = tables["weight_changes"]
    figures = [
        Figure(("weight-change", title, str(mask)), _title(title, part), *_change_chart(part))
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


CHANGES_TOPIC = Topic(changes_section, needs=[CHANGES])


def _words(table: pl.DataFrame) -> list[str]:
    """Say whose weights a mask lets move most: the paper says that masked ones cannot change."""
    length = (pl.col("change") ** 2).sum().sqrt().alias("length")
    masked = table.filter(pl.col("mask") != "none")
    moved = masked.group_by("class_name", maintain_order=True).agg(length).sort("length")
    if moved.is_empty():
        return []
    name, most = moved.row(-1)
    return [
        f"Under single masking the weights of {name} move most, by {most:.4f} in these dimensions. "
        "Those of a class that the task lacks get no gradient, yet move by the velocity that "
        "momentum has kept since the class was last seen"
        + ("; the paper says that it cannot." if cited("Fig. 2", table) else ".")
    ]


def _title(title: str, part: pl.DataFrame) -> str:
    mask = part["mask"][0]
    masking = "no masking" if mask == "none" else f"{mask} masking"
    return f"{title}, task {part['task'][0]}: {masking}"


def _change_chart(part: pl.DataFrame) -> Plot:
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
