"""The topics of the page, in its order; one without anything to show is left out."""

from functools import cache
from importlib import import_module
from pathlib import Path

import polars as pl

from lastlayer.errors import FileFormatError
from lastlayer.report.section import Section, Tables, Topic, name_all
from lastlayer.report.sheet import Sheet
from lastlayer.results import Study

# Named, not imported: the paper's and replay's topics use this package, and not the other way.
_TOPICS = (
    "report.topics.summary:TOPIC",
    "report.topics.standings:TOPIC",
    "report.topics.accuracy:TOPIC",
    "paper.figure_5:MASKS",
    "paper.presets:STARTS_TOPIC",
    "paper.figure_5:SIMILARITY",
    "paper.subsets:TOPIC",
    "paper.preliminary:TOPIC",
    "paper.reproduction:TOPIC",
    "report.topics.linear_layer:NORMS_TOPIC",
    "report.topics.linear_layer:CHANGES_TOPIC",
    "report.topics.interference_maps:TOPIC",
    "report.topics.accuracy:FIRST_TASK",
    "report.topics.lost_samples:TOPIC",
    "replay.topic:TOPIC",
    "paper.claims:TOPIC",
    "paper.presets:PRESETS_TOPIC",
    "report.topics.runs:TOPIC",
)


@cache
def all_topics() -> tuple[Topic, ...]:
    """Return the topics of the page, in its order."""
    places = (name.split(":") for name in _TOPICS)
    return tuple(getattr(import_module(f"lastlayer.{module}"), name) for module, name in places)


@cache
def all_sheets() -> tuple[Sheet, ...]:
    """Return every sheet that some topic reads, each once."""
    read = (sheet for topic in all_topics() for sheet in (*topic.needs, *topic.also))
    return tuple(dict.fromkeys(read))


def make_tables(study: Study) -> dict[str, pl.DataFrame]:
    """Make every sheet of a study; those about what it does not contain are empty.

    Sheets of networks trained end to end are made only where there are some.
    """
    made = {sheet.name: sheet.of(study) for sheet in all_sheets()}
    return {name: table for name, table in made.items() if table is not None}


def make_sections(tables: Tables, files: Path | None = None) -> list[Section]:
    """Make every section that the sheets have rows for.

    Args:
        tables: the sheets by name.
        files: the folder that they were read from, if what they hold may be anything.
    """
    made = []
    for topic in all_topics():
        try:
            section = topic.of(tables)
        except (pl.exceptions.PolarsError, ValueError, TypeError, LookupError) as error:
            if files is None:
                raise
            names = ", ".join(f"{sheet.name}.csv" for sheet in (*topic.needs, *topic.also))
            raise FileFormatError(
                f"expected tables of a report, got {files}: its {names} cannot be shown "
                f"({type(error).__name__}: {error}). Make them again from the results, or move "
                "them away and the page is made without them"
            ) from error
        if section is not None:
            made.append(section)
    return name_all(made)
