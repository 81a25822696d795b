"""Lines with bands: how heads fare over time, or over the size of the data.

Heads whose lines coincide are drawn as one line with all their names: else one would hide the rest.
"""

import json
from collections.abc import Mapping, Sequence

import altair as alt

from lastlayer.report.chart import (
    DATA,
    HEIGHT,
    POINTS,
    WIDTH,
    encode_heads,
    sized,
    switched,
)
from lastlayer.report.section import Chart, Plot, Row

ALIKE = 0.15  # percent of the axis: less than half the width of a line


def lines(
    x: alt.X,
    along: str,
    rows: Sequence[Row],
    heads: Sequence[str],
    hidden: Sequence[str],
    tooltip: Sequence[alt.Tooltip],
    y: str = POINTS,
    size: tuple[float, float] = (WIDTH, HEIGHT),
) -> Plot:
    """Draw a line for each head with a band of its deviation; rows with "end" get a marker.

    Args:
        x: the field that lines run along.
        along: its name.
        rows: with name, head, mask, mean, low, high, end and ``along``, in its order.
        heads: all that the rows hold.
        hidden: those of them that are switched off at first.
        tooltip: what is told of a point.
        y: the title of the axis of means.
        size: width and height of the chart outside the page.
    """
    same = coinciding(rows, along, heads)
    called = {name: " = ".join(group) for group in same for name in group}
    look = encode_heads(heads, hidden)
    base = alt.Chart(DATA).encode(x=x, color=look.colour, detail="name:N")
    mean = alt.Y("mean:Q", title=y)
    band = base.mark_area(opacity=0.13, tooltip=None).encode(y=alt.Y("low:Q", title=y), y2="high:Q")
    line = base.mark_line(strokeWidth=1.7).encode(y=mean, strokeDash=look.dash)
    both = [alt.Tooltip("same:N", title="same curve")] if same else []
    point = base.mark_point(filled=True, size=45).encode(
        y=mean,
        shape=look.shape,
        opacity=alt.condition("datum.end", alt.value(1), alt.value(0)),
        tooltip=[*tooltip, *both],
    )
    layers = [band, line, point]
    if same:
        last = {row["name"]: place for place, row in enumerate(rows)}
        marks = [
            {"same": called.get(row["name"], ""), "last": last[row["name"]] == place}
            for place, row in enumerate(rows)
        ]
        rows = [row | mark for row, mark in zip(rows, marks, strict=True)]
        layers += _names(base, mean)
    chart = _one_of_each(switched(alt.layer(*layers), hidden), same)
    return sized(chart, *reversed(size)), list(rows)


def coinciding(rows: Sequence[Row], along: str, heads: Sequence[str]) -> list[Sequence[str]]:
    """Return the groups of heads whose lines cannot be told apart, in the order of the legend.

    Args:
        rows: of a chart.
        along: the field that lines run along.
        heads: in the order of the legend.

    >>> rows = [{"name": n, "x": 1, "mean": m} for n, m in (("a", 50), ("b", 60), ("c", 50.01))]
    >>> coinciding(rows, "x", ["a", "b", "c"])
    [['a', 'c']]
    """
    curves: dict[str, dict[object, float]] = {}
    for row in rows:
        curves.setdefault(str(row["name"]), {})[row[along]] = float(row["mean"])
    values = [0.0, *(value for curve in curves.values() for value in curve.values())]
    gap = (max(values) - min(values)) * ALIKE / 100
    groups: list[list[str]] = []
    for name in (name for name in heads if name in curves):
        like = (group for group in groups if _alike(curves[group[0]], curves[name], gap))
        group = next(like, None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return [group for group in groups if len(group) > 1]


def _alike(one: Mapping[object, float], other: Mapping[object, float], gap: float) -> bool:
    return one.keys() == other.keys() and all(abs(one[at] - other[at]) <= gap for at in one)


def _one_of_each(chart: Chart, same: Sequence[Sequence[str]]) -> Chart:
    """Draw of heads that coincide the first that is switched on."""
    for group in same:
        for place, name in enumerate(group[1:], start=1):
            off = " && ".join(f"indexof(hidden, {json.dumps(n)}) >= 0" for n in group[:place])
            chart = chart.transform_filter(f"datum.name != {json.dumps(name)} || ({off})")
    return chart


def _names(base: alt.Chart, mean: alt.Y) -> list[alt.Chart]:
    """Write the names of heads that coincide below the end of their line, on white."""
    ends = base.transform_filter("datum.last && datum.same != ''")
    ground = ends.mark_text(
        align="right", baseline="top", dx=-8, dy=6, stroke="white", strokeWidth=3, tooltip=None
    )
    text = ends.mark_text(align="right", baseline="top", dx=-8, dy=6, tooltip=None)
    return [
        drawn.encode(y=mean, text="same:N", color=alt.value("black"), size=alt.value(10))
        for drawn in (ground, text)
    ]
