"""Tables made from runs: means and deviations over seeds, and the best head of each scenario."""

import polars as pl

CELL = ("features", "scenario", "label", "preset", "subset", "head", "mask", "lr")


def head_name(head: str = "head", mask: str = "mask") -> pl.Expr:
    """Write a head with its mask, as it is typed.

    >>> pl.DataFrame({"head": "cosine", "mask": ["none", "single"]}).select(head_name()).rows()
    [('cosine',), ('cosine+single',)]
    """
    masked = pl.concat_str(head, mask, separator="+")
    return pl.when(pl.col(mask) == "none").then(pl.col(head)).otherwise(masked).alias("head")


def final_accuracy(runs: pl.DataFrame) -> pl.DataFrame:
    """Give mean and deviation of the final accuracy over orders and seeds.

    Args:
        runs: finished ones, rows of ``Study.runs``. Those that diverged count as runs, but have no
            accuracy.

    Returns:
        Columns features, scenario, label, preset, subset, head, mask, lr, mean, deviation (0 to 1,
        of the population, as in the paper), runs, diverged; in the order of the runs.
    """
    final = pl.col("final")
    return runs.group_by(CELL, maintain_order=True).agg(
        final.mean().alias("mean"),
        final.std(ddof=0).alias("deviation"),
        pl.len().alias("runs"),
        pl.col("diverged").count().alias("diverged"),
    )


def best_heads(runs: pl.DataFrame) -> pl.DataFrame:
    """Give the head with the largest mean final accuracy on each features, scenario and subset."""
    whole = ("features", "scenario", "label", "preset", "subset")
    return (
        final_accuracy(runs)
        .drop_nulls("mean")
        .sort("mean", descending=True, maintain_order=True)
        .group_by(whole, maintain_order=True)
        .first()
        .with_columns(head_name())
        .drop("mask")
        .sort(whole)
    )


def selection(runs: pl.DataFrame) -> pl.DataFrame:
    """Give each head's best learning rate on each feature set, where several were tried i.i.d.

    The paper selects so, on test accuracy. Features of which a part of the training data was held
    out are measured on that part, and their names say so.

    Returns:
        Columns features, label, preset, head (with its mask), lr, mean, deviation, tried.
    """
    found = final_accuracy(runs).filter(
        pl.col("scenario").str.starts_with("iid"), pl.col("subset").is_null()
    )
    cell = ("features", "label", "preset", "head", "mask")
    return (
        found.drop_nulls(["lr", "mean"])
        .sort("mean", descending=True, maintain_order=True)
        .group_by(cell, maintain_order=True)
        .agg(pl.col("lr", "mean", "deviation").first(), pl.len().alias("tried"))
        .filter(pl.col("tried") > 1)
        .with_columns(head_name())
        .drop("mask")
        .sort("features", "label", "preset", maintain_order=True)
    )


def backbones(runs: pl.DataFrame) -> pl.DataFrame:
    """Give for each data set the features on which heads without a mask do best, i.i.d.

    A head counts with its best learning rate, and only if it was run on all features of the data
    set.

    Returns:
        Columns dataset, label, preset, features, mean (over heads), heads; best features first.
    """
    best = (
        final_accuracy(runs)
        .filter(
            pl.col("scenario").str.starts_with("iid"),
            pl.col("subset").is_null(),
            pl.col("mask") == "none",
        )
        .drop_nulls("mean")
        .with_columns(pl.col("features").str.split("/").list.first().alias("dataset"))
        .group_by("dataset", "label", "preset", "features", "head", maintain_order=True)
        .agg(pl.col("mean").max())
    )
    group = ("dataset", "label", "preset")
    everywhere = pl.col("features").n_unique().over(group) == pl.col("features").n_unique().over(
        (*group, "head")
    )
    return (
        best.filter(everywhere)
        .group_by(*group, "features", maintain_order=True)
        .agg(pl.col("mean").mean(), pl.len().alias("heads"))
        .filter(pl.len().over(group) > 1)
        .sort(*group, "mean", descending=[False, False, False, True])
    )
