"""Axes of classes: numbers inside, so that equal names stay apart, and names for the reader."""

import json
from collections.abc import Mapping

import altair as alt
import polars as pl

from lastlayer.report.section import Chart

FEW = 30  # names that can be read on one axis


def names_of(table: pl.DataFrame) -> dict[int, str]:
    """Return the name of each class of a table, by its number."""
    return dict(table.select("class", "class_name").unique(maintain_order=True).rows())


def class_axis(names: Mapping[int, str], angle: float = 0) -> alt.Axis:
    """Label classes by their names; many are left to the tooltips.

    Args:
        names: of each class, by its number.
        angle: of the labels, in degrees.
    """
    few = len(names) <= FEW
    label = _look_up(names, "datum.label") if few else alt.Undefined
    return alt.Axis(
        labels=few,
        ticks=few,
        labelAngle=angle,
        labelLimit=105,
        labelExpr=label,
        titlePadding=20 if few else 4,  # a reader's font may be wider than ours
    )


def with_name(chart: Chart, names: Mapping[int, str], number: str, name: str) -> Chart:
    """Add the name of a class to rows that hold its number: a map has few names and many rows."""
    return chart.transform_calculate(**{name: _look_up(names, f"datum['{number}']")})


def _look_up(names: Mapping[int, str], key: str) -> str:
    written = json.dumps({str(number): name for number, name in names.items()})
    return f"({written})[{key}]"
