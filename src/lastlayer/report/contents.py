"""The topics of the page by its parts, in its order; one without anything to show is left out."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import polars as pl

from lastlayer.errors import FileFormatError
from lastlayer.report.section import Section, Tables, Topic, name_all
from lastlayer.report.sheet import Sheet
from lastlayer.results import Study

# Named, not imported: the paper's and replay's topics use this package, and not the other way.
_PARTS = {
    "": (
        "report.topics.summary:TOPIC",
        "report.topics.standings:TOPIC",
        "report.topics.accuracy:TOPIC",
        "report.topics.accuracy:FIRST_TASK",
        "report.topics.lost_samples:TOPIC",
        "report.topics.linear_layer:NORMS_TOPIC",
        "report.topics.linear_layer:CHANGES_TOPIC",
        "report.topics.interference_maps:TOPIC",
        "paper.preliminary:TOPIC",
        "paper.subsets:TOPIC",
        "replay.topic:TOPIC",
    ),
    "The paper's questions": (
        "paper.claims:TOPIC",
        "paper.figure_5:MASKS",
        "paper.figure_5:SIMILARITY",
        "paper.presets:STARTS_TOPIC",
        "paper.presets:PRESETS_TOPIC",
        "paper.reproduction:TOPIC",
    ),
    "This study": ("report.topics.runs:TOPIC",),
}


@cache
def all_topics() -> tuple[tuple[str, Topic], ...]:
    """Return the topics of the page, in its order, each with the title of its part."""
    return tuple(
        (part, resolve_name(f"lastlayer.{name}"))
        for part, names in _PARTS.items()
        for name in names
    )


@cache
def all_sheets() -> tuple[Sheet, ...]:
    """Return every sheet that some topic reads, each once."""
    read = (sheet for _, topic in all_topics() for sheet in (*topic.needs, *topic.also))
    return tuple(dict.fromkeys(read))


def make_tables(study: Study) -> dict[str, pl.DataFrame]:
    """Make every sheet of a study; those about what it does not contain are empty.

    Sheets of networks trained end to end are made only where there are some.
    """
    made = {sheet.name: sheet.of(study) for sheet in all_sheets()}
    return {name: table for name, table in made.items() if table is not None}


def make_sections(tables: Tables, files: Path | None = None) -> list[Section]:
    """Make every section that the sheets have rows for.

    Those in a folder of ``files`` may hold anything: one that cannot be shown is named.
    """
    made = []
    for part, topic in all_topics():
        try:
            section = topic.of(tables)
        except (pl.exceptions.PolarsError, ValueError, TypeError, LookupError) as error:
            if files is None:
                raise
            names = ", ".join(f"{sheet.name}.csv" for sheet in (*topic.needs, *topic.also))
            raise FileFormatError(
                f"{files} must hold the tables of a report, but {names} cannot be shown "
                f"({type(error).__name__}: {error}). Make them again from the results, or move "
                "them away and the page is made without them"
            ) from error
        if section is not None:
            made.append(replace(section, part=part))
    return name_all(made)
