"""The grammar of all charts: one scale for layers, one for masks, one signal for the legend."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from lastlayer.report.looks import ALL_LAYERS, FIRST, LAYERS, MASKS, place_of
from lastlayer.report.section import ROWS, Chart

WIDTH, HEIGHT = 460, 290
MANY = 10  # heads; more are not all drawn at first
POINTS = "accuracy in %"
DATA = alt.NamedData(ROWS)
LOOKS = {**LAYERS, ALL_LAYERS: ("#777777", "")}


def layer_scale() -> alt.Scale:
    """Give each layer its colour."""
    return alt.Scale(domain=list(LOOKS), range=[colour for colour, _ in LOOKS.values()])


def marker_scale() -> alt.Scale:
    """Give each layer its marker."""
    return alt.Scale(domain=list(LOOKS), range=[marker for _, marker in LOOKS.values()])


def mask_scale() -> alt.Scale:
    """Give each mask its dash."""
    return alt.Scale(domain=list(MASKS), range=list(MASKS.values()))


def heads_of(table: pl.DataFrame) -> list[str]:
    """Name the heads of a table in the order of all legends."""
    return sorted(table["name"].unique(), key=place_of)


def hidden_of(heads: Sequence[str]) -> list[str]:
    """Name the heads that are switched off at first: none where there are few."""
    few = len(heads) <= MANY or not any(name in FIRST for name in heads)
    return [] if few else [name for name in heads if name not in FIRST]


@dataclass(frozen=True)
class HeadLook:
    """How the heads of a chart look; its legends, for use outside the page, name what is drawn."""

    colour: alt.Color
    shape: alt.Shape
    dash: alt.StrokeDash


def look_of(heads: Sequence[str], hidden: Sequence[str]) -> HeadLook:
    """Give heads their look.

    Args:
        heads: all that a chart holds.
        hidden: those of them that are switched off at first.
    """
    drawn = [name.partition("+") for name in heads if name not in hidden]
    layers = list(dict.fromkeys(layer for layer, _, _ in drawn))
    masks = [mask for mask in MASKS if mask in {mask or "none" for _, _, mask in drawn}]
    names = alt.Legend(title="layer", values=layers, symbolOpacity=1)
    dashes = alt.Legend(title="mask", values=masks, symbolSize=900) if len(masks) > 1 else None
    return HeadLook(
        alt.Color("head:N", scale=layer_scale(), legend=names),
        alt.Shape("head:N", scale=marker_scale(), legend=names),
        alt.StrokeDash("mask:N", scale=mask_scale(), legend=dashes),
    )


def switched(chart: Chart, hidden: Sequence[str]) -> Chart:
    """Let the legend of the page switch heads off and on, by the signal ``hidden``."""
    param = alt.param(name="hidden", value=list(hidden))
    return chart.add_params(param).transform_filter("indexof(hidden, datum.name) < 0")


def sized(chart: Chart, height: float = HEIGHT, width: float = WIDTH) -> Chart:
    """Give a chart the size it has outside the page."""
    return chart.properties(width=width, height=height)


def told(*fields: tuple[str, str]) -> list[alt.Tooltip]:
    """Tell the exact numbers of a mean: what it is of, its deviation, and the number of runs."""
    return [
        *(alt.Tooltip(field, title=title) for field, title in fields),
        alt.Tooltip("mean:Q", title="mean, %", format=".4~f"),
        alt.Tooltip("deviation:Q", title="deviation", format=".4~f"),
        alt.Tooltip("runs:Q", title="runs"),
    ]


def with_band(table: pl.DataFrame) -> pl.DataFrame:
    """Add both ends of mean ± deviation."""
    around = pl.col("deviation").fill_null(0)
    low, high = pl.col("mean") - around, pl.col("mean") + around
    return table.with_columns(
        low.round_sig_figs(6).alias("low"), high.round_sig_figs(6).alias("high")
    )
