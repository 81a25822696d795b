"""Axes of classes: numbers inside, so that equal names stay apart, and names for the reader."""

import json
from collections.abc import Mapping

import altair as alt
import polars as pl

from lastlayer.report.section import Chart

FEW = 30  # names that can be read on one axis
WORST = 20  # classes of a chart that cannot show all


def names_of(table: pl.DataFrame) -> dict[int, str]:
    """Return the name of each class of a table, by its number."""
    return dict(table.select("class", "class_name").unique(maintain_order=True).rows())


def worst(scores: Mapping[int, float], few: int = FEW) -> list[int]:
    """Return the classes that a chart shows, by their numbers: all of few, of many the worst 20.

    Args:
        scores: of each class, by its number; the highest are the worst.
        few: up to this many are all shown.

    >>> worst({0: 0.1, 1: 0.9}), len(worst({c: c / 100 for c in range(100)}))
    ([0, 1], 20)
    """
    if len(scores) <= few:
        return sorted(scores)
    return sorted(sorted(scores, key=lambda c: (-scores[c], c))[:WORST])


def class_axis(names: Mapping[int, str], angle: float = 0) -> alt.Axis:
    """Label classes by their names.

    Args:
        names: of each class, by its number.
        angle: of the labels, in degrees.
    """
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
