"""Tables of networks trained end to end with replay: means and deviations over seeds."""

import polars as pl

from lastlayer.results.tables import deviation

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
    final = pl.col("final")
    return (
        networks.group_by(CELL, maintain_order=True)
        .agg(
            final.mean().alias("mean"),
            deviation(final).alias("deviation"),
            pl.col("images", "lost", *SHARES).mean(),
            pl.len().alias("runs"),
            pl.col("diverged").count().alias("diverged"),
        )
        .sort("features", "scenario", "balance", maintain_order=True)
    )
