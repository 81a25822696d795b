"""Bars with deviations: how heads fare at the end."""

from collections.abc import Sequence

import altair as alt

from lastlayer.report.chart import DATA, POINTS, layer_scale, mask_scale, told
from lastlayer.report.looks import MASKS
from lastlayer.report.section import Chart

FILL = alt.Scale(type="ordinal", domain=list(MASKS), range=[0.9, 0.5, 0.15])


def bars(y: str, order: Sequence[str], highest: float, offset: str | None = None) -> Chart:
    """Draw a bar for each row, with its deviation and its value.

    Args:
        y: the field that names the rows.
        order: its values from top to bottom.
        highest: of all values; beyond it there is room for the number.
        offset: the field that sets bars of one name apart.
    """
    base = alt.Chart(DATA).encode(y=alt.Y(f"{y}:N", sort=list(order), title=None))
    if offset:
        base = base.encode(yOffset=alt.YOffset(f"{offset}:N", sort=list(MASKS)))
    bar = base.mark_bar(stroke="black", strokeWidth=1.2).encode(
        x=alt.X("mean:Q", title=POINTS, scale=alt.Scale(domain=[0, max(highest * 1.12, 1)])),
        color=alt.Color("head:N", scale=layer_scale(), legend=None),
        fillOpacity=alt.FillOpacity("mask:O", scale=FILL, legend=None),
        strokeDash=alt.StrokeDash("mask:N", scale=mask_scale(), legend=None),
        tooltip=told(("name:N", "head")),
    )
    around = base.encode(x=alt.X("low:Q", title=POINTS), x2="high:Q")
    halo = around.mark_rule(strokeWidth=4, color="white", opacity=0.75)  # seen on dark bars too
    error = around.mark_rule(strokeWidth=1.5)
    text = base.mark_text(align="left", dx=4, fontSize=10).encode(
        x=alt.X("high:Q", title=POINTS), text=alt.Text("mean:Q", format=".1f")
    )
    return alt.layer(bar, halo, error, text)
