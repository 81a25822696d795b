"""Which learning rate and which backbone all data at once would choose (tables 2, 3)."""

from collections.abc import Mapping

import polars as pl

from lastlayer.report.looks import GRADIENT
from lastlayer.report.published import SELECTED
from lastlayer.report.tables.select import HEAD, in_order, own_rate
from lastlayer.results import Data

HELD_OUT = " held out)"  # how the name of features ends whose test set is a part of training


def preliminary(iid: pl.DataFrame) -> pl.DataFrame:
    """Keep of ``iid`` what tables 2 and 3 hold: all data, no mask, every learning rate."""
    return iid.filter(pl.col("subset").is_null(), mask="none")


def rates(iid: pl.DataFrame) -> pl.DataFrame:
    """Average each layer at each learning rate over the data sets that have all its rates."""
    table = preliminary(iid).filter(pl.col("head").is_in(GRADIENT), pl.col("mean").is_not_null())
    table = table.with_columns(_held_out(), _set())
    lrs = pl.col("lr").n_unique()
    mine = table.filter(lrs.over("held_out", "head", "set") == lrs.over("held_out", "head"))
    averages = mine.group_by("held_out", "head", "lr").agg(
        pl.col("mean").mean(),
        pl.col("runs").sum(),
        pl.col("set").sort().str.join("; ").alias("over"),
    )
    averages = averages.filter(pl.len().over("held_out", "head") > 1).with_columns(
        (pl.col("mean") == pl.col("mean").max().over("held_out", "head")).alias("best"),
        pl.col("head")
        .replace_strict(SELECTED, default=None, return_dtype=pl.Float64)
        .alias("published_lr"),
    )
    return in_order(averages, "held_out", "head", "lr")


def backbones(iid: pl.DataFrame, data: Mapping[str, Data]) -> pl.DataFrame:
    """Average each backbone over the heads that all backbones of its data set were tried with.

    Args:
        iid: accuracies on all data at once.
        data: where features come from; those of no named data set cannot be compared.
    """
    table = own_rate(
        preliminary(iid).rename({"mean": "final"}), ("features", "label", "preset")
    ).rename({"final": "mean"})
    sets_of = {name: known.origin.get("dataset") or None for name, known in data.items()}
    dataset = pl.col("features").replace_strict(sets_of, default=None, return_dtype=pl.String)
    table = table.with_columns(_held_out(), dataset.alias("data")).drop_nulls("data")
    within = ("held_out", "data", "label")
    sets = pl.col("features").n_unique()
    table = table.filter(sets.over(*within, *HEAD) == sets.over(within), sets.over(within) > 1)
    averages = table.group_by(*within, "features").agg(
        pl.col("mean").mean(),
        pl.col("runs").sum(),
        pl.col("name").sort().str.join(", ").alias("over"),
    )
    best = pl.col("mean") == pl.col("mean").max().over(within)
    return in_order(averages.with_columns(best.alias("best")), *within, "features")


def _held_out() -> pl.Expr:
    return pl.col("features").str.ends_with(HELD_OUT).alias("held_out")


def _set() -> pl.Expr:
    return pl.concat_str("features", "label", separator=", ").alias("set")
