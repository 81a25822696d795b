"""Lines with bands: how heads fare over time, or over the size of the data."""

from collections.abc import Sequence

import altair as alt

from lastlayer.report.chart import DATA, POINTS, head_encoding, layer_scale, marker_scale, switched
from lastlayer.report.section import Chart


def lines(
    x: alt.X,
    heads: Sequence[str],
    hidden: Sequence[str],
    tooltip: Sequence[alt.Tooltip],
    y: str = POINTS,
) -> Chart:
    """Draw a line for each head with a band of its deviation; rows with "end" get a marker.

    Args:
        x: the field that lines run along.
        heads: all that the rows hold.
        hidden: those of them that are switched off at first.
        tooltip: what is told of a point.
        y: the title of the axis of means.
    """
    base = alt.Chart(DATA).encode(x=x, detail="name:N")
    colour = alt.Color("head:N", scale=layer_scale(), legend=None)
    band = base.mark_area(opacity=0.13, tooltip=None).encode(
        y=alt.Y("low:Q", title=y), y2="high:Q", color=colour
    )
    mean = alt.Y("mean:Q", title=y)
    line = base.mark_line(strokeWidth=1.7).encode(y=mean, **head_encoding(heads, hidden))
    point = base.mark_point(filled=True, size=45).encode(
        y=mean,
        color=colour,
        shape=alt.Shape("head:N", scale=marker_scale(), legend=None),
        opacity=alt.condition("datum.end", alt.value(1), alt.value(0)),
        tooltip=list(tooltip),
    )
    return switched(alt.layer(band, line, point), hidden)
