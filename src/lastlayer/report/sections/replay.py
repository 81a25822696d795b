"""Networks trained end to end with replay: what group masking is worth (Fig. 7), and drift."""

from typing import Literal

import altair as alt
import polars as pl

from lastlayer.report.chart import DATA, POINTS, heads_of, sized, told, with_band
from lastlayer.report.lines import lines
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, file_name, rows_of
from lastlayer.report.shown import Table, number, short, spread, words

FIELDS = ("head", "mask", "name", "mean", "deviation", "low", "high", "runs", "end")
PARTS = {  # end of the columns lost_to_… and lost_share_… → the cause in words
    "weights": "changed vectors",
    "interference": "later classes",
    "drift": "drifted features",
}
COLOURS = ("#1b1b3a", "#9fa3c4", "#e3d9b0")  # of no layer; dark to light
MOVED = {
    "angle": "turned by, degrees",
    "norm": "change of norm, %",
    "along": "along its vector, % of the norm",
}


def replay(tables: Tables) -> Section | None:
    """Show accuracy against replay balance and against images, drift, and the causes of loss."""
    if "replay" not in tables:
        return None
    table = tables["replay"].drop_nulls("mean")
    if table.is_empty():
        return None
    text = (
        "The whole network learns, and a memory of old tasks is replayed. Replay balance: how "
        "often an old class comes in an epoch for each instance of a new one. The less is "
        "replayed, the fewer images a network is trained on."
    )
    shown = [_table(title, part) for title, part in _settings(table)]
    panels = [_accuracy(table), _causes(table), *_drift(tables["projection_drift"])]
    return Section("replay", "End to end with replay", [text], panels, shown)


def _settings(table: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Take a table apart by stream and setting, each with a title."""
    parts = table.group_by("stream", "setting", maintain_order=True)
    many = table["setting"].n_unique() > 1
    return [(f"{key[0]}, {key[1]}" if many else str(key[0]), part) for key, part in parts]


def _accuracy(table: pl.DataFrame) -> Panel:
    images = alt.X("images:Q", title="images trained on")
    figures = [
        Figure(file_name("replay", what, title), f"{title}: {what}", *_lines(part, x))
        for title, part in _settings(table)
        for what, x in (("balance", _balance(part)), ("images", images))
    ]
    caption = "Final accuracy on all classes, mean and deviation over seeds. (Fig. 7)"
    return Panel(caption, figures, heads_of(table))


def _balance(part: pl.DataFrame) -> alt.X:
    """Lay out balances by their ratios; where one is 0, by their values."""
    kind: Literal["log", "linear"] = "log" if part["balance"].gt(0).all() else "linear"
    axis = alt.Axis(values=part["balance"].unique().sort().to_list(), format="~g")
    return alt.X("balance:Q", title="replay balance", scale=alt.Scale(type=kind), axis=axis)


def _lines(part: pl.DataFrame, x: alt.X) -> Plot:
    part = with_band(part).with_columns(pl.lit(True).alias("end"))
    tooltip = told(("name:N", "layer"), ("balance:Q", "balance"), ("images:Q", "images"))
    rows = rows_of(part, *FIELDS, "balance", "images")
    return sized(lines(x, heads_of(part), [], tooltip, f"final {POINTS}")), rows


def _causes(table: pl.DataFrame) -> Panel:
    figures = [
        Figure(file_name("replay", "causes", title), title, *_bars(part))
        for title, part in _settings(table.drop_nulls("lost"))
    ]
    caption = (
        "Test samples that were right when their class was learned and are wrong at the end, in "
        "percent of the test set, by Shapley shares of three repairs: the output vectors of then, "
        "later classes removed, the features of then. Mean over seeds."
    )
    return Panel(caption, figures)


def _bars(part: pl.DataFrame) -> Plot:
    balance = pl.col("balance").map_elements("{:g}".format, pl.String)
    where = pl.format("{}, balance {}", "name", balance).alias("where")
    long = pl.concat(
        part.select(
            where,
            "runs",
            pl.lit(cause).alias("cause"),
            pl.lit(place).alias("place"),
            pl.col(f"lost_to_{end}").alias("mean"),
            pl.col(f"lost_share_{end}").alias("share"),
        )
        for place, (end, cause) in enumerate(PARTS.items())
    )
    order, causes = list(part.with_columns(where)["where"]), list(PARTS.values())
    legend = alt.Legend(orient="top", title="lost to", columns=3)
    chart = alt.Chart(DATA).mark_bar(stroke="black", strokeWidth=0.5).encode(
        x=alt.X("mean:Q", stack="zero", title="lost, % of the test set"),
        y=alt.Y("where:N", sort=order, title=None, axis=alt.Axis(labelLimit=220)),
        color=alt.Color(
            "cause:N", scale=alt.Scale(domain=causes, range=list(COLOURS)), legend=legend
        ),
        order=alt.Order("place:Q"),
        tooltip=[
            alt.Tooltip("where:N", title="layer"), alt.Tooltip("cause:N", title="lost to"),
            alt.Tooltip("mean:Q", title="% of the test set", format=".2f"),
            alt.Tooltip("share:Q", title="% of what was lost", format=".1f"),
            alt.Tooltip("runs:Q", title="networks"),
        ],
    )  # fmt: skip
    rows = rows_of(long, "where", "cause", "place", "mean", "share", "runs")
    return sized(chart, height=19 * len(order) + 10), rows


def _drift(table: pl.DataFrame) -> list[Panel]:
    if table.is_empty():
        return []
    figures = [
        Figure(
            file_name("replay-drift", measure, f"{balance:g}", title),
            f"{MOVED[measure]}, balance {balance:g}",
            *_over_tasks(some.filter(measure=measure, balance=balance), MOVED[measure]),
        )
        for title, some in _settings(table)
        for balance in some["balance"].unique().sort()
        for measure in MOVED
    ]
    caption = (
        "Projection drift: how the features of a class's test images have changed since it was "
        "learned; mean over classes, then mean and deviation over seeds. Along its vector: below "
        "0 they moved away from the output vector that the class had then."
    )
    return [Panel(caption, figures, heads_of(table), small=True)]


def _over_tasks(part: pl.DataFrame, title: str) -> Plot:
    part = with_band(part).with_columns(pl.lit(True).alias("end"))
    x = alt.X("tasks_ago:O", title="tasks since", axis=alt.Axis(labelAngle=0))
    tooltip = [
        alt.Tooltip("name:N", title="layer"), alt.Tooltip("tasks_ago:O", title="tasks since"),
        alt.Tooltip("mean:Q", format=".2f"), alt.Tooltip("deviation:Q", format=".2f"),
        alt.Tooltip("runs:Q", title="networks"),
    ]  # fmt: skip
    rows = rows_of(part, *FIELDS, "tasks_ago")
    return sized(lines(x, heads_of(part), [], tooltip, title), 200, 280), rows


def _table(title: str, part: pl.DataFrame) -> Table:
    rows = [
        [short(row["balance"]), words(row["name"]), spread(row["mean"], row["deviation"]),
         number(row["runs"], 0), number(row["images"], 0), number(row["learned"]),
         number(row["forgetting"]), number(row["lost"]),
         *(number(row[f"lost_share_{end}"], 1) for end in PARTS)]
        for row in part.iter_rows(named=True)
    ]  # fmt: skip
    causes = (f"to {cause}, % of it" for cause in PARTS.values())
    header = ("balance", "layer", "final accuracy, %", "networks", "images",
              "right after a task, %", "forgetting, %", "lost, %", *causes)  # fmt: skip
    caption = (
        f"{title}: {part['setting'][0]}; mean ± deviation over seeds. Right after a task: on its "
        "classes, mean over tasks. Forgetting: how far a task fell below its best."
    )
    return Table(file_name("replay", title), caption, header, rows)
