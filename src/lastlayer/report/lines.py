"""Lines with bands: how heads fare over time, or over the size of the data."""

from collections.abc import Sequence

import altair as alt

from lastlayer.report.chart import DATA, POINTS, encode_heads, switched
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
    look = encode_heads(heads, hidden)
    base = alt.Chart(DATA).encode(x=x, color=look.colour, detail="name:N")
    mean = alt.Y("mean:Q", title=y)
    band = base.mark_area(opacity=0.13, tooltip=None).encode(y=alt.Y("low:Q", title=y), y2="high:Q")
    line = base.mark_line(strokeWidth=1.7).encode(y=mean, strokeDash=look.dash)
    point = base.mark_point(filled=True, size=45).encode(
        y=mean,
        shape=look.shape,
        opacity=alt.condition("datum.end", alt.value(1), alt.value(0)),
        tooltip=list(tooltip),
    )
    return switched(alt.layer(band, line, point), hidden)
