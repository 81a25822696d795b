"""The summary: the best head of each stream, the bound without drift, how far linear falls."""

import altair as alt
import polars as pl

from lastlayer.report.chart import DATA, POINTS, layer_scale, marker_scale, sized, told
from lastlayer.report.drift import MEANING
from lastlayer.report.section import Figure, Panel, Plot, Row, Section, Tables, Topic, by_stream
from lastlayer.report.shown import Table, number, spread, words
from lastlayer.report.topics.preliminary import IID
from lastlayer.report.topics.streams import ACCURACY
from lastlayer.results.tables import thrift

AXIS = f"final {POINTS}"
BEST, BOUND, LINEAR = "best head", "all data at once", "linear layer"
COLUMNS = ("head", "name", "mean", "deviation", "runs")


def best_of(part: pl.DataFrame) -> Row:
    """Return the row of the best head; of equally good ones the thriftiest."""
    best = part.filter(pl.col("mean") == pl.col("mean").max())
    return best.sort(thrift(), maintain_order=True).row(0, named=True)


def bounds(iid: pl.DataFrame) -> dict[tuple[str, str], Row]:
    """Return for features and label the best head without a mask on all data at once."""
    whole = iid.filter(pl.col("subset").is_null(), pl.col("mean").is_not_null(), mask="none")
    parts = whole.group_by("features", "label", maintain_order=True)
    return {(str(key[0]), str(key[1])): best_of(part) for key, part in parts}


def section(tables: Tables) -> Section | None:
    """Say in words and one chart which head is best where."""
    known = tables["accuracy"].drop_nulls("mean")
    bound = bounds(tables["iid"])
    rows, lines = [], []
    for title, part in by_stream(known):
        first = part.row(0, named=True)
        best, limit = best_of(part), bound.get((first["features"], first["label"]))
        linear = next(part.filter(name="linear").iter_rows(named=True), None)
        lines.append(_say(title, first, best, limit, linear))
        roles = {BEST: best, BOUND: limit, LINEAR: linear}
        rows += [
            {"stream": title, "role": role, **{name: row[name] for name in COLUMNS}}
            for role, row in roles.items()
            if row
        ]
    if not rows:
        return _without_streams(bound)
    figure = Figure(("summary",), "The best head of each stream", *_chart(rows, len(lines)))
    bar = ", and as a bar the best head without drift: all data at once" if bound else ""
    caption = (
        f"For each stream the best head and the linear layer{bar}. Lines are deviations over "
        "orders of the tasks."
    )
    return Section("summary", "Summary", lines, [Panel(caption, [figure])], [_table(rows)])


TOPIC = Topic(section, needs=[ACCURACY], also=[IID])


def _without_streams(bound: dict[tuple[str, str], Row]) -> Section | None:
    lines = [
        f"{features}, {label}: best on all data at once is {best['name']} with "
        f"{spread(best['mean'], best['deviation']).text} %."
        for (features, label), best in bound.items()
    ]
    return Section("summary", "Summary", lines) if lines else None


def _say(title: str, stream: Row, best: Row, limit: Row | None, linear: Row | None) -> str:
    tasks, drift = stream["n_tasks"], MEANING.get(stream["kind"], stream["kind"])
    text = (
        f"{title} ({drift}, {tasks} tasks): best is {best['name']} with "
        f"{spread(best['mean'], best['deviation']).text} %"
    )
    if limit:
        gap = limit["mean"] - best["mean"]
        where = f"{gap:.1f} points below" if gap >= 0 else f"{-gap:.1f} points above"
        text += f", {where} all data at once ({limit['name']}, {limit['mean']:.2f} %)"
    if linear and linear["name"] != best["name"]:
        text += (
            ". The ordinary linear layer ends at "
            f"{spread(linear['mean'], linear['deviation']).text} %, "
            f"{best['mean'] - linear['mean']:.1f} points below the best"
        )
    return text + "."


def _chart(rows: list[Row], streams: int) -> Plot:
    axis = alt.Axis(labelLimit=190)
    base = alt.Chart(DATA).encode(
        y=alt.Y("stream:N", sort=None, title=None, axis=axis), x=alt.X("mean:Q", title=AXIS)
    )
    tooltip = told(("role:N", "what"), ("name:N", "head"))
    layers = [row["head"] for row in rows]
    colour = alt.Color("head:N", scale=layer_scale(layers), legend=None)
    shape = alt.Shape("head:N", scale=marker_scale(layers), legend=None)
    heads = base.transform_filter(f"datum.role != '{BOUND}'")
    drawn = [
        heads.mark_line(color="#999", strokeWidth=1, strokeDash=[1, 3]).encode(detail="stream:N"),
        heads.mark_rule(strokeWidth=2.5).encode(
            x=alt.X("low:Q", title=AXIS), x2="high:Q", color=colour
        ),
        heads.mark_point(filled=True, size=110, opacity=1).encode(
            color=colour, shape=shape, tooltip=tooltip
        ),
    ]
    places = {BEST: -14, LINEAR: 15}  # names stand above and below, so that they never meet
    for role in dict.fromkeys(row["role"] for row in rows):  # a layer without rows has no scale
        some = base.transform_filter(f"datum.role == '{role}'")
        if role == BOUND:
            tick = some.mark_tick(color="black", thickness=2.5, size=26)
            drawn.insert(1, tick.encode(tooltip=tooltip))
        else:
            drawn.append(
                some.mark_text(dy=places[role], align="right", dx=9, fontSize=11).encode(
                    text="name:N"
                )
            )
    chart = alt.layer(*drawn)
    return sized(chart, height=max(90, 56 * streams)), [_with_ends(row) for row in rows]


def _with_ends(row: Row) -> Row:
    around = row["deviation"] or 0
    return row | {"low": row["mean"] - around, "high": row["mean"] + around}


def _table(rows: list[Row]) -> Table:
    cells = [
        [words(str(row["stream"])), words(str(row["role"])), words(str(row["name"])),
         spread(row["mean"], row["deviation"]), number(row["runs"], digits=0)]
        for row in rows
    ]  # fmt: skip
    header = ("stream", "what", "head", "final accuracy, %", "runs")
    return Table(("summary",), "Best head, linear layer, and all data at once.", header, cells)
