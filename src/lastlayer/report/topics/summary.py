"""The summary: the best head of each stream, the bound without drift, how far linear falls."""

import shlex
from collections.abc import Sequence
from statistics import fmean
from typing import TypeAlias

import altair as alt
import polars as pl

from lastlayer.catalogue.head_cards import thrift as catalogue_thrift
from lastlayer.catalogue.scenario_cards import SCENARIOS
from lastlayer.core.names import joined
from lastlayer.report.charts import DATA, POINTS, sized, told, with_band
from lastlayer.report.data_names import MEANING, data_name
from lastlayer.report.looks import layer_scale, marker_scale, place_of
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream
from lastlayer.report.table import Row, Table, mean_of, number, spread, words
from lastlayer.report.topics.accuracy import ACCURACY
from lastlayer.report.topics.runs import REFERENCES, SETS
from lastlayer.report.topics.standings import Standing, standings
from lastlayer.results.tables import thrift

AXIS = f"final {POINTS}"
BEST, BOUND, LINEAR = "best head", "all data at once", "linear layer"
SOFTMAX = "softmax regression"
SAID = 3  # streams whose accuracies the answer tells one by one
Places: TypeAlias = Sequence[tuple[str, Standing, Sequence[Standing]]]  # by stream; all heads there
COLUMNS = ("head", "name", "mean", "deviation", "runs")


def best_of(part: pl.DataFrame) -> Row:
    """Return the row of the best head; of equally good ones the thriftiest."""
    best = part.filter(pl.col("mean") == pl.col("mean").max())
    return best.sort(thrift(), maintain_order=True).row(0, named=True)


def bounds(tables: Tables) -> dict[tuple[str, str], Row]:
    """Return for features and label what all data at once reach.

    That is a softmax regression that has converged; in studies that have none, the best head.
    """
    known = {
        (row["features"], row["label"]): {
            "head": SOFTMAX, "name": SOFTMAX, "mean": row["mean"], "deviation": None, "runs": 1,
        }
        for row in tables["references"].iter_rows(named=True)
    }  # fmt: skip
    return _best_heads(tables) | known


def _best_heads(tables: Tables) -> dict[tuple[str, str], Row]:
    """Return for features and label the best head without a mask on all data at once."""
    if "iid" not in tables:
        return {}
    whole = tables["iid"].filter(
        pl.col("subset").is_null(), pl.col("mean").is_not_null(), mask="none"
    )
    parts = whole.group_by("features", "label", maintain_order=True)
    return {(str(key[0]), str(key[1])): best_of(part) for key, part in parts}


def section(tables: Tables) -> Section | None:
    """Say in words and one chart which head is best where."""
    bound = bounds(tables)
    rows, lines = [], []
    for title, found in _streams(tables):
        best = found[0].row
        limit = bound.get((best["features"], best["label"]))
        linear = next((each.row for each in found if each.name == "linear"), None)
        lines.append(_say(title, found, limit, linear))
        roles = {BEST: best, BOUND: limit, LINEAR: linear if linear is not best else None}
        rows += [
            {"stream": title, "role": role, **{name: row[name] for name in COLUMNS}}
            for role, row in roles.items()
            if row
        ]
    if not rows:
        return _without_streams(_best_heads(tables))
    figure = Figure(("summary",), "The best head of each stream", *_chart(rows, len(lines)))
    linear_too = " and the linear layer" if any(row["role"] == LINEAR for row in rows) else ""
    bars = {row["name"] == SOFTMAX for row in rows if row["role"] == BOUND}
    what = "a softmax regression retrained on" if bars == {True} else "what is reached with"
    bar = f", and as a bar {what} all data at once" if bars else ""
    caption = (
        f"For each stream the best head{linear_too}{bar}. Lines are deviations over orders of the "
        "tasks."
    )
    panels = [Panel(caption, [figure])]
    return Section("summary", "Summary", lines, panels, [_table(rows)], listed=True)


TOPIC = Topic(section, needs=[], also=[ACCURACY, SETS, REFERENCES], reads=["iid"])


def answer(tables: Tables) -> str:
    """Say in a sentence what did best; nothing where the study has no stream.

    It is the head with the best average among those that were run on every stream. Test rows chose
    it, and the sentence says so.
    """
    if "accuracy" not in tables:
        return ""
    streams = _streams({"data": SETS.empty(), **tables})
    if not streams:
        return ""
    everywhere = set.intersection(*({each.name for each in found} for _, found in streams))
    if not everywhere:
        each = "; ".join(f"{found[0].name} for {title}" for title, found in streams)
        return f"No head was run on every stream. Best on the test rows: {each}."
    places = {
        name: [
            (title, mine, found) for title, found in streams for mine in found if mine.name == name
        ]
        for name in everywhere
    }
    best = min(
        everywhere,
        key=lambda name: (-fmean(mine.mean for _, mine, _ in places[name]), catalogue_thrift(name)),
    )
    return _advice(best, places[best])


def how_to_choose(tables: Tables) -> str:
    """Return the command that chooses a head for the study's stream; of several, its name."""
    streams = tables["accuracy"].drop_nulls("mean").select("features", "scenario").unique().rows()
    if len(streams) > 1:
        return "lastlayer advise"
    ((features, scenario),) = streams
    return shlex.join(["lastlayer", "advise", features.partition(" (")[0], "--scenario", scenario])


def _advice(best: str, places: Places) -> str:
    means = sorted(mine.mean for _, mine, _ in places)
    at = f"{means[0]:.1f} to {means[-1]:.1f} % on the {len(places)} streams"
    if len(places) <= SAID:
        at = joined([f"{mine.mean:.1f} % ({title})" for title, mine, _ in places])
    ends = f"it ends at {at}"
    if all(len(found) == 1 for _, _, found in places):
        return f"{best} is the only head of this study: {ends}."
    behind = [
        f"{mine.behind:.1f} points behind {found[0].name} on {title}"
        for title, mine, found in places
        if not mine.level
    ]
    level = [
        {each.name for each in found if each.level} - {best} for _, mine, found in places
        if mine.level
    ]  # fmt: skip
    ties = sorted(set.intersection(*level), key=place_of) if level and not behind else []
    everywhere = len({frozenset(each.name for each in found) for _, _, found in places}) == 1
    among = "" if everywhere else " of the heads that were run on every stream"
    average = f" on average{among}" if behind else ""
    text = f"On the test rows {best} is best{average}: {ends}"
    if behind:
        return f"{text}; it is {' and '.join(behind)}."
    if ties:
        are = "are" if len(ties) > 1 else "is"
        return f"{text}; {joined(ties)} {are} level with it, as far as the test samples can tell."
    where = "" if len(places) == 1 else ", and no other head is as good on every stream"
    return f"{text}{where}."


def _streams(tables: Tables) -> list[tuple[str, list[Standing]]]:
    parts = by_stream(tables["accuracy"].drop_nulls("mean"))
    return [(title, standings(part, tables["data"])) for title, part in parts]


def _without_streams(bound: dict[tuple[str, str], Row]) -> Section | None:
    lines = [
        f"{data_name(features)}, {label}: best on all data at once is {best['name']} with "
        f"{spread(best['mean'], best['deviation']).text} %."
        for (features, label), best in bound.items()
    ]
    return Section("summary", "Summary", lines, listed=True) if lines else None


def _say(title: str, found: list[Standing], limit: Row | None, linear: Row | None) -> str:
    first, best = found[0], found[0].row
    low, high = first.interval
    sure = f" (95 % interval {low:.1f} to {high:.1f})" if first.reach else ""
    leads = f"best is {first.name} with" if len(found) > 1 else f"{first.name} ends at"
    text = (
        f"{title}{_about(title, best)}: {leads} "
        f"{spread(best['mean'], best['deviation']).text} %{sure}"
    )
    if limit:
        gap = limit["mean"] - best["mean"]
        where = f"{abs(gap):.1f} points {'below' if gap > 0 else 'above'}"
        where = "as good as" if abs(gap) < 0.05 else where
        text += f", {where} all data at once ({limit['name']}, {limit['mean']:.2f} %)"
    level = [each.name for each in found[1:] if each.level]
    if level:
        text += f". Level with it, as far as the test samples can tell: {joined(level)}"
    if linear and linear is not best:
        text += (
            ". The ordinary linear layer ends at "
            f"{spread(linear['mean'], linear['deviation']).text} %, "
            f"{best['mean'] - linear['mean']:.1f} points below the best"
        )
    return text + "."


def _about(title: str, stream: Row) -> str:
    """Say how a stream changes, and in how many tasks; what its title says is not said again."""
    drift = MEANING.get(stream["kind"], stream["kind"])
    said: list[str] = [str(drift)] if stream["scenario"] in SCENARIOS else []
    said += [] if "task" in title else [f"{stream['n_tasks']} tasks"]
    return f" ({', '.join(said)})" if said else ""


def _chart(rows: list[Row], streams: int) -> Plot:
    axis = alt.Axis(labelLimit=190, labelExpr="split(datum.label, ', ')")  # a line for each part
    base = alt.Chart(DATA).encode(
        y=alt.Y("stream:N", sort=None, title=None, axis=axis), x=alt.X("mean:Q", title=AXIS)
    )
    tooltip = told(("role:N", "what"), ("name:N", "head"))
    layers = [row["head"] for row in rows if row["role"] != BOUND]
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
    for role in dict.fromkeys(row["role"] for row in rows):  # a layer without rows has no scale
        some = base.transform_filter(f"datum.role == '{role}'")
        if role == BOUND:
            tick = some.mark_tick(color="black", thickness=2.5, size=18)
            drawn.insert(1, tick.encode(tooltip=tooltip))
        else:
            drawn += _names(some, role, [row["mean"] for row in rows if row["role"] == role])
    chart = alt.layer(*drawn)
    ends = with_band(pl.DataFrame(rows, infer_schema_length=None))
    return sized(chart, height=max(90, 62 * streams)), ends.to_dicts()


def _names(some: alt.Chart, role: str, means: Sequence[float]) -> list[alt.Chart]:
    """Write names above and below all marks, so that they meet none, on the side that has room."""
    above, middle = -19 if role == BEST else 19, max(means) / 2
    drawn = []
    if any(mean > middle for mean in means):
        high = some.transform_filter(f"datum.mean > {middle}")
        drawn.append(high.mark_text(dy=above, align="right", dx=9))
    if any(mean <= middle for mean in means):
        low = some.transform_filter(f"datum.mean <= {middle}")
        drawn.append(low.mark_text(dy=above, align="left", dx=-9))
    return [text.encode(text="name:N", size=alt.value(11)) for text in drawn]


def _table(rows: list[Row]) -> Table:
    cells = [
        [words(str(row["stream"])), words(str(row["role"])), words(str(row["name"])),
         mean_of(row), number(row["runs"], digits=0)]
        for row in rows
    ]  # fmt: skip
    header = ("stream", "what", "head", "final accuracy, %", "runs")
    roles = list(dict.fromkeys(str(row["role"]) for row in rows))
    return Table(("summary",), f"{joined(roles).capitalize()} of each stream.", header, cells)
