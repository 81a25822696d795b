"""What the presets paper and exact give, where both were run."""

import polars as pl

from lastlayer.report.drift import title_of
from lastlayer.report.section import Row, Section, Tables, Topic
from lastlayer.report.select import HEAD, STREAM, in_order, own_rate, own_way, percent, with_names
from lastlayer.report.sheet import MEAN, Sheet, integers, numbers, texts
from lastlayer.report.shown import Table, number, spread, words
from lastlayer.results import Study

CELL = texts(*STREAM, "kind", *HEAD, "name") | integers("subset")


def presets(study: Study) -> pl.DataFrame:
    """Return both presets side by side, and exact minus paper in points."""
    within = (*STREAM, "preset", "subset")
    runs = own_way(own_rate(with_names(study.done), within), (*within, *HEAD, "lr"))
    cell = list(CELL)
    table = runs.group_by(*cell, "preset").agg(percent("final"))
    paper, exact = (table.filter(preset=name).drop("preset") for name in ("paper", "exact"))
    both = paper.join(exact, on=cell, suffix="_exact", nulls_equal=True)
    both = both.with_columns((pl.col("mean_exact") - pl.col("mean")).alias("difference"))
    return in_order(both, "kind", *STREAM, "subset", *HEAD)


EXACT = numbers("mean_exact", "deviation_exact") | integers("runs_exact") | numbers("difference")
SHEET = Sheet("presets", CELL | MEAN | EXACT, presets)


def section(tables: Tables) -> Section | None:
    """Return both side by side."""
    table = tables["presets"].drop_nulls("difference")
    if table.is_empty():
        return None
    rows = [
        [words(_where(row)), words(row["name"]), spread(row["mean"], row["deviation"]),
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


TOPIC = Topic(section, needs=[SHEET])


def _where(row: Row) -> str:
    some = "" if row["subset"] is None else f", {row['subset']} samples"
    return title_of(str(row["features"]), str(row["scenario"])) + some
