"""Every published number that the study can be put beside, and how far ours lies from it."""

from typing import Any

import polars as pl

from lastlayer.report.published import KEY, agree, published

GROUP = ("experiment", "features", "label")


def reproduction(iid: pl.DataFrame) -> pl.DataFrame:
    """Give each published number with ours, for the data sets of ``iid`` under preset "paper".

    A masked head was published at one learning rate, and it is not always the one that the text
    names: of several of ours the nearest is taken. ``verdict`` is null where ours is missing.
    """
    ours = iid.filter(pl.col("mean").is_not_null(), preset="paper")
    theirs = published().rename({"mean": "published_mean", "std": "published_std"})
    theirs = theirs.join(
        ours.select("features", "label").unique(), on=["features", "label"], how="semi"
    )
    rows = [_beside(row, ours) for row in theirs.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=SCHEMA)


SCHEMA = {
    "experiment": pl.String, **dict.fromkeys(KEY[:4], pl.String), "lr": pl.Float64,
    "subset": pl.Int64, "mean": pl.Float64, "deviation": pl.Float64, "runs": pl.Int64,
    "published_mean": pl.Float64, "published_std": pl.Float64, "difference": pl.Float64,
    "verdict": pl.String,
}  # fmt: skip


def _beside(row: dict[str, Any], ours: pl.DataFrame) -> dict[str, Any]:
    """Put ours beside one published number."""
    same = [pl.col(name).eq_missing(row[name]) for name in KEY if name != "lr"]
    if row["mask"] == "none":
        same.append(pl.col("lr").eq_missing(row["lr"]))
    distance = (pl.col("mean") - row["published_mean"]).abs()
    found = ours.filter(*same).sort(distance).head(1).to_dicts()
    if not found:
        return {**row, "verdict": None}
    mean, deviation = found[0]["mean"], found[0]["deviation"]
    return {
        **row,
        **{name: found[0][name] for name in ("lr", "mean", "deviation", "runs")},
        "difference": mean - row["published_mean"],
        "verdict": agree(mean, deviation or 0.0, row["published_mean"], row["published_std"]),
    }


def agreement(table: pl.DataFrame) -> pl.DataFrame:
    """Count what agrees in each group, and give the mean difference of what can be judged."""
    judged = pl.col("verdict").is_in(["agrees", "differs"])
    return table.group_by(GROUP, maintain_order=True).agg(
        pl.len().alias("published"),
        judged.sum().alias("judged"),
        (pl.col("verdict") == "agrees").sum().alias("agree"),
        pl.col("difference").filter(judged).mean().alias("bias"),
        pl.col("difference")
        .filter(judged & (pl.col("mask") == "none"))
        .mean()
        .alias("bias_unmasked"),
    )
