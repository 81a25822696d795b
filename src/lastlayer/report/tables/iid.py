"""All data at once, or few of them, with the published numbers beside ours (tables 1 to 4)."""

import polars as pl

from lastlayer.report.published import beside
from lastlayer.report.tables.select import HEAD, in_order, own_rate, percent, with_names
from lastlayer.results import Study

SET = ("features", "label")
PUBLISHED = {"published_mean": pl.Float64, "published_std": pl.Float64, "verdict": pl.String}


def iid(study: Study) -> pl.DataFrame:
    """Give each head at each learning rate and subset, over seeds; one preset for each data set."""
    runs = with_names(study.done.filter(n_tasks=1))
    first = runs.group_by(SET).agg(pl.col("preset").max())
    runs = runs.join(first, on=[*SET, "preset"], how="semi")
    cell = [*SET, "preset", *HEAD, "name", "lr", "subset"]
    # "iid" and "iid/class" may be the same; a mean is the same to the last digit in one order only
    runs = runs.unique([*cell, "seed"], keep="first", maintain_order=True)
    table = runs.group_by(cell).agg(*percent("final"), pl.col("diverged").count().cast(pl.Int64))
    paper = table.filter(pl.col("mean").is_not_null(), preset="paper")
    known = beside(paper.with_columns(pl.col("deviation").fill_null(0).alias("std"))).drop("std")
    rest = table.filter(pl.col("mean").is_null() | (pl.col("preset") != "paper"))
    empty = (pl.lit(None, dtype=kind).alias(name) for name, kind in PUBLISHED.items())
    table = pl.concat([known, rest.with_columns(*empty)]).sort("lr", descending=True)
    return in_order(table, *SET, *HEAD, "subset")


def subsets(table: pl.DataFrame) -> pl.DataFrame:
    """Keep of ``iid`` the data sets that were tried in subsets, each head at one learning rate."""
    table = table.filter(pl.col("subset").is_not_null().any().over(SET))
    named = table.rename({"mean": "final"})
    return own_rate(named, (*SET, "preset", "subset")).rename({"final": "mean"})


def subset_average(study: Study) -> pl.DataFrame:
    """Average over the data sets that have all heads and sizes (Fig. 6).

    The published average is given where each of its numbers was published and is not wide.
    """
    table = subsets(iid(study))
    cell = [*HEAD, "name", "subset"]
    sets = pl.concat_str(SET, separator=", ").alias("set")
    cells = pl.struct(cell).n_unique()
    table = table.with_columns(sets).filter(cells.over("set") == cells)
    narrow = (pl.col("verdict") != "wide").fill_null(False).all()
    averages = table.group_by(cell).agg(
        pl.col("mean").mean(),
        pl.when(pl.col("deviation").is_not_null().all())
        .then((pl.col("deviation") ** 2).sum().sqrt() / pl.len())
        .alias("deviation"),
        pl.col("runs").sum(),
        pl.when(narrow).then(pl.col("published_mean").mean()).alias("published_mean"),
        pl.col("set").sort().str.join("; ").alias("over"),
    )
    return in_order(averages, *HEAD, "subset")
