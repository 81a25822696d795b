"""Tables of networks trained end to end with replay: means and deviations over seeds."""

import polars as pl

CELL = ("features", "scenario", "label", "balance", "head", "mask", "lr",
        "epochs", "per_class", "batch_size", "optimizer")  # fmt: skip
SHARES = ("lost_share_weights", "lost_share_interference", "lost_share_drift")


def replay_accuracy(networks: pl.DataFrame) -> pl.DataFrame:
    """Give the final accuracy against replay balance, and what it cost (Fig. 7).

    Args:
        networks: finished ones, rows of ``Study.replay``.

    Returns:
        For each features, scenario, setting, balance, head and mask: mean and deviation of
        the final accuracy (0 to 1; of the population, as in the paper, null for one), the mean
        number of images that a network was trained on, of test samples lost at the end and their
        shares by cause, and how many networks there are and diverged; by balance, then in the order
        of the networks.
    """
    return (
        networks.group_by(CELL, maintain_order=True)
        .agg(
            *_spread(pl.col("final")),
            pl.col("images", "lost", *SHARES).mean(),
            pl.len().alias("runs"),
            pl.col("diverged").count().alias("diverged"),
        )
        .sort("features", "scenario", "balance", maintain_order=True)
    )


def masking_gain(networks: pl.DataFrame) -> pl.DataFrame:
    """Give what group masking adds to the final accuracy, network by network of one seed.

    Returns:
        Columns features, scenario, balance, head, mean, deviation, runs: of the difference.
    """
    cell = [name for name in CELL if name != "mask"]
    known = networks.drop_nulls("final").select(*cell, "mask", "seed", "final")
    plain, group = (known.filter(mask=mask).drop("mask") for mask in ("none", "group"))
    pairs = group.join(plain, on=[*cell, "seed"], suffix="_plain", maintain_order="left")
    return (
        pairs.group_by(cell, maintain_order=True)
        .agg(*_spread(pl.col("final") - pl.col("final_plain")), pl.len().alias("runs"))
        .select("features", "scenario", "balance", "head", "mean", "deviation", "runs")
        .sort("features", "scenario", "balance", maintain_order=True)
    )


def _spread(of: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Give the mean, and the deviation where there are two or more."""
    deviation = pl.when(of.count() > 1).then(of.std(ddof=0))
    return of.mean().alias("mean"), deviation.alias("deviation")
