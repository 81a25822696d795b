"""The charts of all pages: their size, tooltips and axes of classes; bars, and lines with bands.

Axes of classes hold numbers, so that equal names stay apart, and show names. Heads whose lines
coincide are drawn as one line with all their names: otherwise one would hide the rest.
"""

import json
import textwrap
from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from lastlayer.report.looks import encode_heads, heads_of, layer_scale, mask_scale, masks
from lastlayer.report.section import ROWS, Chart, Plot, rows_of
from lastlayer.report.table import Row

DATA = alt.NamedData(ROWS)
WIDTH, HEIGHT = 460, 290
POINTS = "accuracy in %"
FEW = 30  # names that can be read on one axis
WORST = 20  # classes of a chart that cannot show all
ALIKE = 0.15  # percent of the axis: less than half the width of a line
BAR = ("head", "mask", "name", "mean", "deviation", "low", "high", "runs")  # and of a line
LETTER = 7  # pixels of a small letter, in a wide font
BESIDE = 34  # pixels on the right, for the number of a bar that ends at 100 %


def switched(chart: Chart, hidden: Sequence[str]) -> Chart:
    """Let the legend of the page switch heads off and on, by the signal ``hidden``."""
    param = alt.param(name="hidden", value=list(hidden))
    return chart.add_params(param).transform_filter("indexof(hidden, datum.name) < 0")


def sized(chart: Chart, height: float = HEIGHT, width: float = WIDTH) -> Chart:
    """Set the size that a chart has outside the page."""
    return chart.properties(width=width, height=height)


def told(*fields: tuple[str, str]) -> list[alt.Tooltip]:
    """Return tooltips with the exact numbers of a mean: its subject, deviation and runs."""
    return [
        *(alt.Tooltip(field, title=title) for field, title in fields),
        alt.Tooltip("mean:Q", title="mean, %", format=".4~f"),
        alt.Tooltip("deviation:Q", title="deviation", format=".4~f"),
        alt.Tooltip("runs:Q", title="runs"),
    ]


def with_band(
    table: pl.DataFrame, reach: str = "deviation", whole: float | None = 100
) -> pl.DataFrame:
    """Add both ends of mean ± ``reach``: of a share, neither below 0 nor above the whole."""
    around = pl.col(reach).fill_null(0)
    ends = {"low": pl.col("mean") - around, "high": pl.col("mean") + around}
    if whole is not None:
        ends = {name: end.clip(0, whole) for name, end in ends.items()}
    return table.with_columns(end.round_sig_figs(6).alias(name) for name, end in ends.items())


def names_of(table: pl.DataFrame) -> dict[int, str]:
    """Return the name of each class of a table, by its number."""
    return dict(table.select("class", "class_name").unique(maintain_order=True).rows())


def worst(scores: Mapping[int, float]) -> list[int]:
    """Return the classes that a chart shows: all of few, of many the 20 with the highest scores.

    >>> worst({0: 0.1, 1: 0.9}), len(worst({c: c / 100 for c in range(100)}))
    ([0, 1], 20)
    """
    if len(scores) <= FEW:
        return sorted(scores)
    return sorted(sorted(scores, key=lambda c: (-scores[c], c))[:WORST])


def class_axis(names: Mapping[int, str], angle: float = 0) -> alt.Axis:
    """Label classes, which are numbers, by their names, at an angle in degrees."""
    return alt.Axis(
        labelAngle=angle,
        labelLimit=130,
        labelOverlap=False,
        labelExpr=_look_up(names, "datum.label"),
        titlePadding=20,  # a reader's font may be wider than ours
    )


def with_name(chart: Chart, names: Mapping[int, str], number: str, name: str) -> Chart:
    """Add the name of a class to rows that hold its number: a map has few names and many rows."""
    return chart.transform_calculate(**{name: _look_up(names, f"datum['{number}']")})


def _look_up(names: Mapping[int, str], key: str) -> str:
    written = json.dumps({str(number): name for number, name in names.items()})
    return f"({written})[{key}]"


def bars(
    table: pl.DataFrame,
    y: str,
    order: Sequence[str],
    height: float,
    offset: str | None = None,
    reach: str = "deviation",
) -> Plot:
    """Draw a bar for each row, in percent, with its value and its ``reach`` to each side.

    The columns are those of BAR but its ends, and ``y``, which names the rows from top to bottom;
    ``offset`` sets bars of one name apart.
    """
    known = with_band(table.drop_nulls("mean"), reach)
    rows = rows_of(known, *dict.fromkeys((*BAR, y)))
    # Up to the whole there is room for the number within the chart, beyond it beside the chart.
    highest = max((float(row["high"]) for row in rows), default=1)
    ends = alt.Scale(domain=[0, min(100, max(highest * 1.12, 1))], nice=highest * 1.12 < 95)
    heads = [row["head"] for row in rows]
    fill = alt.Scale(type="ordinal", domain=masks(), range=[0.9, 0.5, 0.15])
    axis = alt.Axis(labelLimit=210)
    base = alt.Chart(DATA).encode(y=alt.Y(f"{y}:N", sort=list(order), title=None, axis=axis))
    if offset:
        base = base.encode(yOffset=alt.YOffset(f"{offset}:N", sort=masks()))
    bar = base.mark_bar(stroke="black", strokeWidth=1.2).encode(
        x=alt.X("mean:Q", title=POINTS, scale=ends),
        color=alt.Color("head:N", scale=layer_scale(heads), legend=None),
        fillOpacity=alt.FillOpacity("mask:O", scale=fill, legend=None),
        strokeDash=alt.StrokeDash("mask:N", scale=mask_scale(), legend=None),
        tooltip=told(("name:N", "head")),
    )
    around = base.encode(x=alt.X("low:Q", title=POINTS), x2="high:Q")
    halo = around.mark_rule(strokeWidth=4, color="white", opacity=0.75)  # seen on dark bars too
    error = around.mark_rule(strokeWidth=1.5)
    text = base.mark_text(align="left", dx=4, fontSize=10).encode(
        x=alt.X("high:Q", title=POINTS), text=alt.Text("mean:Q", format=".1f")
    )
    drawn = sized(alt.layer(bar, halo, error, text), height)
    return drawn.properties(padding={"left": 5, "top": 5, "bottom": 5, "right": BESIDE}), rows


def lines(
    table: pl.DataFrame,
    x: alt.X,
    along: str,
    tooltip: Sequence[alt.Tooltip],
    *also: str,
    hidden: Sequence[str] = (),
    y: str = POINTS,
    whole: float | None = 100,
    size: tuple[float, float] = (WIDTH, HEIGHT),
) -> Plot:
    """Draw a line for each head along a column, in its order, with a band of its deviation.

    The columns are those of BAR but its ends, and what tooltips need ``also``. Every point has a
    marker, or those with "end" where there is such a column. Heads that are hidden are switched
    off at first.
    """
    if "end" not in table.columns:
        table = table.with_columns(pl.lit(True).alias("end"))
    heads = heads_of(table)
    columns = dict.fromkeys((*BAR, "end", along, *also))
    rows = rows_of(with_band(table, whole=whole), *columns)
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
    chart = _one_of_each(switched(alt.layer(band, line, point), hidden), same)
    if same:
        rows = [row | {"same": called.get(row["name"], "")} for row in rows]
        chart = chart.properties(title=_named_together(same, size[0]))
    return sized(chart, *reversed(size)), rows


def coinciding(rows: Sequence[Row], along: str, heads: Sequence[str]) -> list[Sequence[str]]:
    """Return the groups of heads whose lines along a field cannot be told apart.

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
        like = [group for group in groups if _alike(curves[group[0]], curves[name], gap)]
        if like:
            like[0].append(name)
        else:
            groups.append([name])
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


def _named_together(same: Sequence[Sequence[str]], width: float) -> alt.TitleParams:
    """Write the names of heads that coincide above the chart, where no line runs."""
    said = (textwrap.wrap(f"one line: {' = '.join(group)}", int(width / LETTER)) for group in same)
    return alt.TitleParams(
        [line for lines_ in said for line in lines_],
        anchor="start",
        fontSize=10,
        fontWeight="normal",
        color="#4a4a4a",
    )
