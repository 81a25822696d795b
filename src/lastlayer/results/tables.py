"""Tables made from runs: means and deviations over seeds, and the best head of each scenario."""

from collections.abc import Sequence

import polars as pl

from lastlayer.catalogue import head_cards

CELL = ("features", "scenario", "label", "preset", "subset", "head", "mask", "lr", "start", "gain",
        "batch_size")  # fmt: skip
NETWORK_CELL = ("features", "scenario", "label", "balance", "head", "mask", "lr",
        "epochs", "per_class", "batch_size", "optimizer", "clip", "start", "precision")  # fmt: skip
SHARES = ("lost_share_weights", "lost_share_interference", "lost_share_drift")


def head_name() -> pl.Expr:
    """Return the name of a head with its mask, as it is typed, from the columns head and mask.

    >>> pl.DataFrame({"head": "cosine", "mask": ["none", "single"]}).select(head_name()).rows()
    [('cosine',), ('cosine+single',)]
    """
    masked = pl.concat_str("head", "mask", separator="+")
    return pl.when(pl.col("mask") == "none").then(pl.col("head")).otherwise(masked).alias("head")


def thrift() -> pl.Expr:
    """Return a sort key for equally good heads, the thriftiest first; one without a card is last.

    >>> heads = pl.DataFrame({"head": ["new", "knn", "cosine+single", "mean"]})
    >>> heads.sort(thrift())["head"].to_list()
    ['mean', 'cosine+single', 'knn', 'new']
    """
    places = {name: n for n, name in enumerate(sorted(head_cards.HEADS, key=head_cards.thrift))}
    layer = pl.col("head").str.split("+").list.first()
    return layer.replace_strict(places, default=len(places), return_dtype=pl.Int64)


def deviation(value: pl.Expr) -> pl.Expr:
    """Return the population standard deviation, as in the paper; null for a single value."""
    return pl.when(value.count() > 1).then(value.std(ddof=0))


_OUTCOME = (
    pl.col("final").mean().alias("mean"),
    deviation(pl.col("final")).alias("deviation"),
    pl.len().alias("runs"),
    pl.col("diverged").count().alias("diverged"),
)


def final_accuracy(runs: pl.DataFrame) -> pl.DataFrame:
    """Return mean and deviation of the final accuracy of finished runs over orders and seeds.

    They are from 0 to 1, beside the columns of ``CELL`` and the numbers of runs and of those that
    diverged, which have no accuracy; in the order in which the runs were planned.
    """
    return runs.group_by(_there(runs, CELL), maintain_order=True).agg(*_OUTCOME)


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
    """Return the final accuracy of finished networks by replay balance, and what it cost (Fig. 7).

    Beside what ``final_accuracy`` gives, for ``NETWORK_CELL``: the mean number of images trained on
    and of test samples lost at the end, and the latter's shares by cause.
    """
    return (
        networks.group_by(_there(networks, NETWORK_CELL), maintain_order=True)
        .agg(*_OUTCOME[:2], pl.col("images", "lost", *SHARES).mean(), *_OUTCOME[2:])
        .sort("features", "scenario", "balance", maintain_order=True)
    )
