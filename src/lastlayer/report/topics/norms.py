"""Norm and bias of the linear layer at the end (Fig. 1)."""

from typing import Any

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import bias_change
from lastlayer.errors import UnknownNameError
from lastlayer.report.axes import FEW, WORST, class_axis, names_of, worst
from lastlayer.report.chart import DATA, layer_scale, sized
from lastlayer.report.published import cited
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream, rows_of
from lastlayer.report.select import HEAD, STREAM, class_names, in_order, order_0
from lastlayer.report.sheet import Sheet, integers, numbers, rows_as, texts
from lastlayer.results import Study

WHAT = (*STREAM, "kind", *HEAD, "name")
COLUMNS = (
    texts(*WHAT)
    | integers("class")
    | texts("class_name")
    | integers("tasks_ago")
    | numbers("norm", "bias", "bias_change")
)
MEASURES = {
    "norm": "norm at the end",
    "bias": "bias at the end",
    "bias_change": "change of the bias, last task",
}
AGE = {0: "the last task", 1: "the task before", None: "earlier"}


def norms(study: Study) -> pl.DataFrame:
    """Return norm and bias of each class at the end, and what the last task changed; order 0."""
    runs = order_0(study).filter(head="linear", mask="none")
    names = ("norm", "bias", "task_order", "n_per_class", "n_per_task")
    arrays = {name: study.arrays(name, runs) for name in names}
    arrived = _arrived(study, runs)
    rows: list[tuple[Any, ...]] = []
    for run in runs.filter(pl.col("digest").is_in(list(arrays["norm"]))).iter_rows(named=True):
        norm, bias, order, classes, tasks = (arrays[name][run["digest"]] for name in names)
        came = None
        if run["kind"] == "incremental":
            guess = _task_of_class(classes, tasks, order)
            came = arrived.get(run["digest"], guess)
        ago = [None] * len(classes) if came is None else _ago(came, len(order))
        change = bias_change(bias[-2], bias[-1])
        values = zip(ago, *(_plain(a) for a in (norm[-1], bias[-1], change)), strict=True)
        rows += [
            (*(run[name] for name in WHAT), *named, *each)
            for named, each in zip(class_names(study, run), values, strict=True)
        ]
    return in_order(rows_as(COLUMNS, rows), "kind", *STREAM, "class")


SHEET = Sheet("norms", COLUMNS, norms)


def _arrived(study: Study, runs: pl.DataFrame) -> dict[str, NDArray[Any]]:
    """Return by run when each class came, counted in tasks; older results do not say it."""
    try:
        return study.arrays("arrived", runs)
    except UnknownNameError:
        return {}


def _ago(came: NDArray[Any], n_tasks: int) -> list[int | None]:
    """Count the tasks since each class came; one that never came has none."""
    return [n_tasks - 1 - task if task >= 0 else None for task in came.tolist()]


def _task_of_class(
    classes: NDArray[Any], tasks: NDArray[Any], order: NDArray[Any]
) -> NDArray[np.int64] | None:
    """Guess when each class came, from the sizes of classes and tasks; classes ascend."""
    if not len(tasks) or classes.sum() != tasks.sum():
        return None
    number = np.searchsorted(np.cumsum(tasks), np.cumsum(classes))
    return np.argsort(order)[number]


def _plain(values: NDArray[Any]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def section(tables: Tables) -> Section | None:
    """Show which classes of a stream are favoured, whatever the data."""
    table = tables["norms"]
    if table.is_empty():
        return None
    panels = [
        Panel(
            f"{title}: the linear layer after the last task, order 0.{_ages(part)}"
            + cited("Fig. 1", part),
            [
                Figure(
                    ("norms", measure, title),
                    f"{words}{_some(part)}",
                    *_chart(part, measure, words),
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


TOPIC = Topic(section, needs=[SHEET])


def _some(part: pl.DataFrame) -> str:
    """Say in a title which classes are shown, where not all are."""
    n = part.height
    return f": of {n} classes the {WORST} farthest from the median" if n > FEW else ""


def _ages(part: pl.DataFrame) -> str:
    known = part["tasks_ago"].count()
    dark = " The darkest bars are classes of the last task, then those of the task before."
    return dark if known else ""


def _chart(part: pl.DataFrame, measure: str, words: str) -> Plot:
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
