"""The grammar of all charts: one scale for layers, one for masks, one signal for the legend."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from lastlayer.catalogue import PAPER_HEADS
from lastlayer.report.looks import FIRST, dash_of, layers_among, look_of, masks, place_of
from lastlayer.report.section import ROWS, Chart

WIDTH, HEIGHT = 460, 290
MANY = 10  # heads; more are not all drawn at first
POINTS = "accuracy in %"
DATA = alt.NamedData(ROWS)


def layer_scale(heads: Sequence[str]) -> alt.Scale:
    """Return the colour of each layer.

    Args:
        heads: of the chart; all layers of the catalogue are in the scale anyway.
    """
    layers = layers_among(heads)
    return alt.Scale(domain=layers, range=[look_of(layer).colour for layer in layers])


def marker_scale(heads: Sequence[str]) -> alt.Scale:
    """Return the marker of each layer.

    Args:
        heads: of the chart; all layers of the catalogue are in the scale anyway.
    """
    layers = layers_among(heads)
    return alt.Scale(domain=layers, range=[look_of(layer).marker for layer in layers])


def mask_scale() -> alt.Scale:
    """Return the dash of each mask."""
    return alt.Scale(domain=masks(), range=[dash_of(mask) for mask in masks()])


def heads_of(table: pl.DataFrame) -> list[str]:
    """Return the heads of a table in the order of all legends."""
    return sorted(table["name"].unique(), key=place_of)


def hidden_of(heads: Sequence[str]) -> list[str]:
    """Return the heads that are switched off at first; none if there are few."""
    few = len(heads) <= MANY or not any(name in FIRST for name in heads)
    hidden = {*PAPER_HEADS} - {*FIRST}  # any other head is there because somebody wanted it
    return [] if few else [name for name in heads if name in hidden]


@dataclass(frozen=True)
class HeadLook:
    """How the heads of a chart look; its legends, for use outside the page, name what is drawn."""

    colour: alt.Color
    shape: alt.Shape
    dash: alt.StrokeDash


def encode_heads(heads: Sequence[str], hidden: Sequence[str]) -> HeadLook:
    """Encode the look of heads.

    Args:
        heads: all that a chart holds.
        hidden: those of them that are switched off at first.
    """
    drawn = [name.partition("+") for name in heads if name not in hidden]
    layers = list(dict.fromkeys(layer for layer, _, _ in drawn))
    some = [mask for mask in masks() if mask in {mask or "none" for _, _, mask in drawn}]
    names = alt.Legend(title="layer", values=layers, symbolOpacity=1)
    dashes = alt.Legend(title="mask", values=some, symbolSize=900) if len(some) > 1 else None
    return HeadLook(
        alt.Color("head:N", scale=layer_scale(heads), legend=names),
        alt.Shape("head:N", scale=marker_scale(heads), legend=names),
        alt.StrokeDash("mask:N", scale=mask_scale(), legend=dashes),
    )


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
    """Add both ends of mean ± deviation.

    Args:
        table: with the columns mean and ``reach``.
        reach: the column of what is added and taken away.
        whole: what no share can be beyond, nor below 0; None: it is not a share.
    """
    around = pl.col(reach).fill_null(0)
    ends = {"low": pl.col("mean") - around, "high": pl.col("mean") + around}
    if whole is not None:
        ends = {name: end.clip(0, whole) for name, end in ends.items()}
    return table.with_columns(end.round_sig_figs(6).alias(name) for name, end in ends.items())
