"""What the presets paper and exact give, where both were run."""

import polars as pl

from lastlayer.report.tables.select import HEAD, STREAM, in_order, own_rate, percent, with_names
from lastlayer.results import Study


def presets(study: Study) -> pl.DataFrame:
    """Give both presets side by side, and exact minus paper in points."""
    runs = own_rate(with_names(study.done), (*STREAM, "preset", "subset"))
    cell = [*STREAM, "kind", *HEAD, "name", "subset"]
    table = runs.group_by(*cell, "preset").agg(percent("final"))
    paper, exact = (table.filter(preset=name).drop("preset") for name in ("paper", "exact"))
    both = paper.join(exact, on=cell, suffix="_exact", nulls_equal=True)
    both = both.with_columns((pl.col("mean_exact") - pl.col("mean")).alias("difference"))
    return in_order(both, "kind", *STREAM, "subset", *HEAD)
