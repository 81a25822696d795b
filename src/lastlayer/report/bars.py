"""Bars with deviations: how heads fare at the end."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from lastlayer.report.chart import DATA, POINTS, layer_scale, mask_scale, sized, told, with_band
from lastlayer.report.looks import masks
from lastlayer.report.section import Plot, rows_of

FIELDS = ("head", "mask", "name", "mean", "deviation", "low", "high", "runs")
BESIDE = 34  # pixels on the right, for the number of a bar that ends at 100 %


def bars(
    table: pl.DataFrame,
    y: str,
    order: Sequence[str],
    height: float,
    offset: str | None = None,
    reach: str = "deviation",
) -> Plot:
    """Draw a bar for each row, with its deviation and its value.

    Args:
        table: columns head, mask, name, mean, deviation, runs, and ``y``; in percent.
        y: the column that names the rows.
        order: its values from top to bottom.
        height: of the chart.
        offset: the column that sets bars of one name apart.
        reach: the column of what is drawn to each side of a mean.
    """
    known = with_band(table.drop_nulls("mean"), reach)
    rows = rows_of(known, *dict.fromkeys((*FIELDS, y)))
    # Up to the whole there is room for the number within the chart, beyond it beside the chart.
    highest = max((float(row["high"]) for row in rows), default=1)
    ends = alt.Scale(domain=[0, min(100, max(highest * 1.12, 1))], nice=highest * 1.12 < 95)
    heads = [row["head"] for row in rows]
    fill = alt.Scale(type="ordinal", domain=masks(), range=[0.9, 0.5, 0.15])
    axis = alt.Axis(labelLimit=170)
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
