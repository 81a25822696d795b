"""The topics of the page, in its order; one without anything to show is left out."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from lastlayer.errors import FileFormatError
from lastlayer.report.section import Section, Tables, Topic, name_all
from lastlayer.report.sheet import Sheet
from lastlayer.report.topics import (
    claims,
    first_task,
    interference,
    masks,
    norms,
    preliminary,
    presets,
    published,
    ranking,
    repairs,
    replay,
    runs,
    similarity,
    starts,
    streams,
    subsets,
    summary,
    weights,
)
from lastlayer.results import Study

TOPICS: Sequence[Topic] = tuple(
    module.TOPIC
    for module in (
        summary,
        ranking,
        streams,
        masks,
        starts,
        similarity,
        subsets,
        preliminary,
        published,
        norms,
        weights,
        interference,
        first_task,
        repairs,
        replay,
        claims,
        presets,
        runs,
    )
)
SHEETS: Sequence[Sheet] = tuple(
    dict.fromkeys(sheet for topic in TOPICS for sheet in (*topic.needs, *topic.also))
)


def make_tables(study: Study) -> dict[str, pl.DataFrame]:
    """Make every sheet of a study; those about what it does not contain are empty.

    Sheets of networks trained end to end are made only where there are some.
    """
    made = {sheet.name: sheet.of(study) for sheet in SHEETS}
    return {name: table for name, table in made.items() if table is not None}


def make_sections(tables: Tables, files: Path | None = None) -> list[Section]:
    """Make every section that the sheets have rows for.

    Args:
        tables: the sheets by name.
        files: the folder that they were read from, if what they hold may be anything.
    """
    made = []
    for topic in TOPICS:
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
