"""Tables made from runs: means and deviations over seeds, and the best head of each scenario."""

from collections.abc import Sequence

import polars as pl

from lastlayer import catalogue

CELL = ("features", "scenario", "label", "preset", "subset", "head", "mask", "lr", "start", "gain",
        "batch_size")  # fmt: skip
NETWORK_CELL = ("features", "scenario", "label", "balance", "head", "mask", "lr",
        "epochs", "per_class", "batch_size", "optimizer", "clip", "start", "precision")  # fmt: skip
SHARES = ("lost_share_weights", "lost_share_interference", "lost_share_drift")


def head_name(head: str = "head", mask: str = "mask") -> pl.Expr:
    """Return the name of a head with its mask, as it is typed.

    >>> pl.DataFrame({"head": "cosine", "mask": ["none", "single"]}).select(head_name()).rows()
    [('cosine',), ('cosine+single',)]
    """
    masked = pl.concat_str(head, mask, separator="+")
    return pl.when(pl.col(mask) == "none").then(pl.col(head)).otherwise(masked).alias("head")


def thrift() -> pl.Expr:
    """Return a sort key for equally good heads, the thriftiest first; one without a card is last.

    >>> heads = pl.DataFrame({"head": ["new", "knn", "cosine+single", "mean"]})
    >>> heads.sort(thrift())["head"].to_list()
    ['mean', 'cosine+single', 'knn', 'new']
    """
    places = {name: n for n, name in enumerate(sorted(catalogue.HEADS, key=catalogue.thrift))}
    layer = pl.col("head").str.split("+").list.first()
    return layer.replace_strict(places, default=len(places), return_dtype=pl.Int64)


def deviation(value: pl.Expr) -> pl.Expr:
    """Return the population standard deviation, as in the paper; null for a single value."""
    return pl.when(value.count() > 1).then(value.std(ddof=0))


def final_accuracy(runs: pl.DataFrame) -> pl.DataFrame:
    """Return mean and deviation of the final accuracy over orders and seeds.

    Args:
        runs: finished rows of ``Study.runs``. Those that diverged count as runs, but have no
            accuracy.

    Returns:
        Columns features, scenario, label, preset, subset, head, mask, lr, start, gain, batch_size,
        mean, deviation (0 to 1, of the population, as in the paper; null for one run), runs and
        diverged; in the order in which the runs were planned.
    """
    final = pl.col("final")
    return runs.group_by(_there(runs, CELL), maintain_order=True).agg(
        final.mean().alias("mean"),
        deviation(final).alias("deviation"),
        pl.len().alias("runs"),
        pl.col("diverged").count().alias("diverged"),
    )


def best_heads(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the head with the best mean final accuracy for each features, scenario and subset.

    Ties go to the thriftiest head.
    """
    whole = ("features", "scenario", "label", "preset", "subset")
    return (
        final_accuracy(runs)
        .drop_nulls("mean")
        .sort("mean", thrift(), descending=[True, False], maintain_order=True)
        .group_by(whole, maintain_order=True)
        .first()
        .with_columns(head_name())
        .drop("mask")
        .sort(whole)
    )


def _there(table: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Keep the columns that a table has: one exported by an earlier version lacks the newest."""
    return [name for name in columns if name in table.columns]


def replay_accuracy(networks: pl.DataFrame) -> pl.DataFrame:
    """Return the final accuracy against replay balance, and what it cost (Fig. 7).

    Args:
        networks: finished rows of ``Study.replay``.

    Returns:
        For each features, scenario, setting, balance, head and mask: the mean and deviation of
        the final accuracy (0 to 1; of the population, as in the paper, null for a single network),
        the mean number of images trained on and of test samples lost at the end, the latter's
        shares by cause, and how many networks there are and how many diverged; by balance, then in
        the order of the networks.
    """
    final = pl.col("final")
    return (
        networks.group_by(_there(networks, NETWORK_CELL), maintain_order=True)
        .agg(
            final.mean().alias("mean"),
            deviation(final).alias("deviation"),
            pl.col("images", "lost", *SHARES).mean(),
            pl.len().alias("runs"),
            pl.col("diverged").count().alias("diverged"),
        )
        .sort("features", "scenario", "balance", maintain_order=True)
    )
