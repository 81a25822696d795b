"""A part of the page: words, charts that share a legend, and tables."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import altair as alt
import polars as pl

from lastlayer.report.drift import title_of
from lastlayer.report.shown import Table

Tables: TypeAlias = Mapping[str, pl.DataFrame]
Row: TypeAlias = dict[str, Any]  # of a table, by column
Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart
Plot: TypeAlias = tuple[Chart, list[Row]]  # a chart of the rows that are named ROWS in it
ROWS = "rows"


@dataclass(frozen=True, eq=False)
class Figure:
    """One chart."""

    name: str  # of its files
    title: str
    chart: Chart
    rows: Sequence[Row]
    square: bool = False  # as high as it is wide

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The whole chart in Vega-Lite, its rows within; altair never looks through the rows."""
        about = {"description": self.title, "datasets": {ROWS: list(self.rows)}}
        return self.chart.to_dict() | about


@dataclass(frozen=True, eq=False)
class Panel:
    """Charts side by side, with one caption and one legend."""

    caption: str
    figures: Sequence[Figure]
    heads: Sequence[str] = ()  # of the legend; none: the charts need no legend
    hidden: Sequence[str] = ()  # heads that are switched off at first
    small: bool = False  # three charts in a row, not two


@dataclass(frozen=True, eq=False)
class Section:
    """What is said and shown about one question."""

    name: str
    title: str
    words: Sequence[str] = ()
    panels: Sequence[Panel] = ()
    tables: Sequence[Table] = field(default_factory=tuple)


def file_name(*parts: str) -> str:
    """Make the name of a file out of any words.

    >>> file_name("accuracy", "cifar10, resnet20-cifar100")
    'accuracy-cifar10-resnet20-cifar100'
    """
    return "-".join(filter(None, (re.sub(r"\W+", "-", p.lower()).strip("-") for p in parts)))


def by_stream(table: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Take a table apart by stream, each with its title, in the order of its rows."""
    parts = table.group_by("features", "scenario", "label", maintain_order=True)
    return [(title_of(str(key[0]), str(key[1])), part) for key, part in parts]


def rows_of(table: pl.DataFrame, *columns: str) -> list[Row]:
    """Give the rows of a chart, with its columns only."""
    return table.select(columns).to_dicts()
