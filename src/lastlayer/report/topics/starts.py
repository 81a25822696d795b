"""What the start and the gain of a head are worth: all that were run, side by side."""

import polars as pl

from lastlayer.catalogue import GAINS, STARTS
from lastlayer.report.section import Section, Tables, Topic, by_stream
from lastlayer.report.select import HEAD, STREAM, all_ways, in_order, percent
from lastlayer.report.sheet import MEAN, Sheet, texts
from lastlayer.report.shown import Table, number, spread, words
from lastlayer.results import Study

CELL = texts(*STREAM, "kind", *HEAD, "name", "way")


def starts(study: Study) -> pl.DataFrame:
    """Return the final accuracy of each head on each stream, from each start and with each gain."""
    runs = all_ways(study).with_columns(pl.coalesce("start", "gain").alias("way"))
    runs = runs.drop_nulls("way").filter(pl.col("way").n_unique().over(*STREAM, *HEAD) > 1)
    table = runs.group_by(CELL.keys()).agg(percent("final"))
    return in_order(table, "kind", *STREAM, *HEAD, "way")


SHEET = Sheet("starts", CELL | MEAN, starts)


def section(tables: Tables) -> Section | None:
    """Show the ways of each head side by side."""
    table = tables["starts"].drop_nulls("mean")
    if table.is_empty():
        return None
    text = (
        "Under the preset paper, linear, linear_no_bias and original_weight_norm can start with "
        "uniform rows, as nn.Linear does, or kaiming normal ones; weight_norm can have no gain "
        "(unit) or that of its first rows (frozen). The authors' code had each for a time "
        "(docs/decisions/9). Charts show the uniform start and unit gain, unless they say more.",
    )
    shown = [_table(title, part) for title, part in by_stream(table)]
    return Section("starts", "Where heads start", text, (), shown)


TOPIC = Topic(section, needs=[SHEET])


def _table(title: str, part: pl.DataFrame) -> Table:
    ways = [way for way in (*STARTS, *GAINS) if way in set(part["way"])]
    rows = []
    for (name,), mine in part.group_by("name", maintain_order=True):
        by = {row["way"]: row for row in mine.iter_rows(named=True)}
        means = [by[way]["mean"] for way in ways if way in by]
        cells = (spread(by[w]["mean"], by[w]["deviation"]) if w in by else words("") for w in ways)
        rows.append([words(str(name)), *cells, number(means[-1] - means[0], sign=True)])
    caption = f"{title}: final accuracy in %, mean ± deviation over orders."
    return Table(("starts", title), caption, ("head", *ways, "difference"), rows)
