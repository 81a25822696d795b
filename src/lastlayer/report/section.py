"""What pages are made of: sections of words, charts that share a legend, and tables; and topics."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

import altair as alt
import polars as pl

from lastlayer.report.data_names import titles_of
from lastlayer.report.sheet import Sheet
from lastlayer.report.table import Row, Table

Tables: TypeAlias = Mapping[str, pl.DataFrame]
Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart
Plot: TypeAlias = tuple[Chart, list[Row]]  # a chart of the rows that are named ROWS in it
ROWS = "rows"
LONGEST = 100  # bytes of a file's name, its ending aside


@dataclass(frozen=True, eq=False)
class Figure:
    """One chart."""

    about: Sequence[str]  # what makes it different from all others; its name is made of it
    title: str
    chart: Chart
    rows: Sequence[Row]
    square: bool = False  # as high as it is wide
    name: str = ""  # of its files; given when the page is put together

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The whole chart in Vega-Lite, its rows within; altair never looks through the rows.

        Checking it against Vega-Lite's schema would take longer than all else: the tests do that.
        """
        about = {"description": self.title, "datasets": {ROWS: list(self.rows)}}
        return self.chart.to_dict(validate=False) | about


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
    tables: Sequence[Table] = ()
    listed: bool = False  # whether several words stand one below the other, with bullets
    code: str = ""  # shown as it is typed
    folded: Sequence[str] = ()  # more words, which a click unfolds
    fold: str = "More"  # what is clicked
    part: str = ""  # of the page that it belongs to, by its title; the first needs none


@dataclass(frozen=True, eq=False)
class Topic:
    """One question and its answer: sheets, and the section made from them."""

    section: Callable[[Tables], Section | None]  # None: the study contains nothing about it
    needs: Sequence[Sheet]  # without one of them the topic is not on the page
    also: Sequence[Sheet] = ()  # may be missing, and are then empty
    # Sheets of topics that this package must not import, by name; they may be missing.
    reads: Sequence[str] = ()

    def of(self, tables: Tables) -> Section | None:
        """Return the section, if the sheets that it needs have rows."""
        if any(sheet.name not in tables or tables[sheet.name].is_empty() for sheet in self.needs):
            return None
        missing = {s.name: s.empty() for s in self.also if s.name not in tables}
        return self.section({**tables, **missing})


def by_stream(table: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Take a table apart by stream, each with its title, in the order of its rows."""
    groups = table.group_by("features", "scenario", "label", maintain_order=True)
    parts = [(str(key[0]), str(key[1]), part) for key, part in groups]
    titles = titles_of([(features, scenario) for features, scenario, _ in parts])
    return [(title, part) for title, (_, _, part) in zip(titles, parts, strict=True)]


def rows_of(table: pl.DataFrame, *columns: str) -> list[Row]:
    """Return the rows of a chart, with its columns only."""
    return table.select(columns).to_dicts()


Named = TypeVar("Named", Figure, Table)


def name_all(sections: Sequence[Section]) -> list[Section]:
    """Name each figure and each table of a page, no two alike."""
    figures = iter(_named([f for s in sections for panel in s.panels for f in panel.figures]))
    tables = iter(_named([table for s in sections for table in s.tables]))
    return [
        replace(
            section,
            panels=[
                replace(panel, figures=[next(figures) for _ in panel.figures])
                for panel in section.panels
            ],
            tables=[next(tables) for _ in section.tables],
        )
        for section in sections
    ]


def _named(things: Sequence[Named]) -> list[Named]:
    names = file_names([thing.about for thing in things])
    return [replace(thing, name=name) for thing, name in zip(things, names, strict=True)]


def file_names(abouts: Sequence[Sequence[str]]) -> list[str]:
    """Make the names of files out of any words: short, and no two alike.

    >>> file_names([("accuracy", "cifar10, resnet20-cifar100")])
    ['accuracy-cifar10-resnet20-cifar100']
    >>> file_names([("norms", "a-b"), ("norms", "a.b"), ("norms", "c")])
    ['norms-a-b-435aed8f', 'norms-a-b-9c4f9f6d', 'norms-c']
    """
    plain = [_plain(about) for about in abouts]
    same, before = Counter(plain), Counter[str]()
    names = []
    for about, name in zip(abouts, plain, strict=True):
        key = json.dumps(about)
        before[key] += 1
        mark = sha256(f"{key}{before[key] if before[key] > 1 else ''}".encode()).hexdigest()[:8]
        cut = name.encode()[: LONGEST - 9].decode(errors="ignore")
        long = len(name.encode()) > LONGEST
        names.append(f"{cut}-{mark}" if long or same[name] > 1 else name)
    return names


def _plain(words: Sequence[str]) -> str:
    return "-".join(filter(None, (re.sub(r"\W+", "-", w.lower()).strip("-") for w in words)))
