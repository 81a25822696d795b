"""What presets, starts and gains are worth: all that were run, side by side."""

import polars as pl

from lastlayer.catalogue.head_cards import GAINS, STARTS
from lastlayer.report.data_names import title_of
from lastlayer.report.section import Section, Tables, Topic, by_stream
from lastlayer.report.select import (
    HEAD,
    STREAM,
    WHAT,
    every_option,
    in_order,
    own_options,
    own_rate,
    percent,
    with_names,
)
from lastlayer.report.sheet import MEAN, Sheet, integers, numbers, texts
from lastlayer.report.table import Row, Table, across, mean_of, number, spread, words
from lastlayer.results import Study

START = texts(*WHAT, "way")
PRESET = texts(*WHAT) | integers("subset")


def presets(study: Study) -> pl.DataFrame:
    """Return both presets side by side, and exact minus paper in points."""
    within = (*STREAM, "preset", "subset")
    runs = own_options(own_rate(with_names(study.done), within), (*within, *HEAD, "lr"))
    cell = list(PRESET)
    table = runs.group_by(*cell, "preset").agg(percent("final"))
    paper, exact = (table.filter(preset=name).drop("preset") for name in ("paper", "exact"))
    both = paper.join(exact, on=cell, suffix="_exact", nulls_equal=True)
    both = both.with_columns((pl.col("mean_exact") - pl.col("mean")).alias("difference"))
    return in_order(both, "kind", *STREAM, "subset", *HEAD)


EXACT = numbers("mean_exact", "deviation_exact") | integers("runs_exact") | numbers("difference")
PRESETS = Sheet("presets", PRESET | MEAN | EXACT, presets)


def presets_section(tables: Tables) -> Section | None:
    """Return both side by side."""
    table = tables["presets"].drop_nulls("difference")
    if table.is_empty():
        return None
    rows = [
        [words(_where(row)), words(row["name"]), mean_of(row),
         spread(row["mean_exact"], row["deviation_exact"]), number(row["difference"], sign=True),
         number(row["runs"], digits=0), number(row["runs_exact"], digits=0)]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    most = table.sort(pl.col("difference").abs(), descending=True).row(0, named=True)
    text = (
        "The preset paper reproduces the paper and its code with their quirks; exact mends them. "
        f"They differ most for {most['name']} on {_where(most)}: exact is "
        f"{number(most['difference'], sign=True).text} points from paper."
    )
    header = ("where", "head", "paper, %", "exact, %", "exact − paper", "runs", "runs, exact")
    shown = Table(("presets",), "Final accuracy under both presets.", header, rows)
    return Section("presets", "The presets paper and exact", [text], (), [shown])


PRESETS_TOPIC = Topic(presets_section, needs=[PRESETS])


def _where(row: Row) -> str:
    some = "" if row["subset"] is None else f", {row['subset']} samples"
    return title_of(str(row["features"]), str(row["scenario"])) + some


def starts(study: Study) -> pl.DataFrame:
    """Return the final accuracy of each head on each stream, from each start and with each gain."""
    runs = every_option(study).with_columns(pl.coalesce("start", "gain").alias("way"))
    runs = runs.drop_nulls("way").filter(pl.col("way").n_unique().over(*STREAM, *HEAD) > 1)
    table = runs.group_by(START.keys()).agg(percent("final"))
    return in_order(table, "kind", *STREAM, *HEAD, "way")


STARTS_SHEET = Sheet("starts", START | MEAN, starts)


def starts_section(tables: Tables) -> Section | None:
    """Show the starts and gains of each head side by side."""
    table = tables["starts"].drop_nulls("mean")
    if table.is_empty():
        return None
    text = (
        "Under the preset paper, linear, linear_no_bias and original_weight_norm can start with "
        "uniform rows, as nn.Linear does, or kaiming normal ones; weight_norm can have no gain "
        "(unit) or that of its first rows (frozen). The authors' code had each for a time "
        "(docs/decisions/9). Charts show the uniform start and unit gain, unless they say more.",
    )
    shown = [_starts_table(title, part) for title, part in by_stream(table)]
    return Section("starts", "Where heads start", text, (), shown)


STARTS_TOPIC = Topic(starts_section, needs=[STARTS_SHEET])


def _starts_table(title: str, part: pl.DataFrame) -> Table:
    ways = [way for way in (*STARTS, *GAINS) if way in set(part["way"])]
    rows = []
    for (name,), mine in part.group_by("name", maintain_order=True):
        means = dict(mine.select("way", "mean").rows())
        first, *_, last = (means[way] for way in ways if way in means)
        added = number(last - first, sign=True)
        rows.append([words(str(name)), *across(mine, "way", ways), added])
    caption = f"{title}: final accuracy in %, mean ± deviation over orders."
    return Table(("starts", title), caption, ("head", *ways, "difference"), rows)
