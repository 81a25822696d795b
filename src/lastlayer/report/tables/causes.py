"""Why test samples were lost by the end of a stream, per head."""

import polars as pl

from lastlayer.report.tables.select import HEAD, STREAM, in_order, streams
from lastlayer.results import Study
from lastlayer.results.tables import deviation

CAUSES = {  # column of the store → the cause in words
    "lost_to_weights": "changed vectors",
    "lost_to_interference": "later classes",
    "lost_to_either": "either alone",
    "lost_together": "both together",
}


def causes(study: Study) -> pl.DataFrame:
    """Give the test samples lost to each cause, in percent of the test set, mean over orders."""
    runs = streams(study).drop_nulls("lost")
    sizes = {digest: int(n.sum()) for digest, n in study.arrays("n_per_class", runs).items()}
    size = pl.col("digest").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    long = (
        runs.with_columns(size.alias("size"))
        .unpivot(
            list(CAUSES),
            index=[*STREAM, "kind", *HEAD, "name", "size", "order", "seed"],
            variable_name="cause",
            value_name="samples",
        )
        .with_columns(
            pl.col("cause").replace_strict(CAUSES),
            pl.col("samples").cast(pl.Float64) * 100 / pl.col("size").cast(pl.Float64),
        )
    )
    table = long.group_by(*STREAM, "kind", *HEAD, "name", "cause", maintain_order=True).agg(
        pl.col("samples").mean().alias("mean"),
        deviation(pl.col("samples")).alias("deviation"),
        pl.len().cast(pl.Int64).alias("runs"),
    )
    return in_order(table, "kind", *STREAM, *HEAD)
