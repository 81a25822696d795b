"""Which runs the figures are about, and in which order rows stand."""

import polars as pl

from lastlayer.report.drift import KINDS, kind_of, title_of
from lastlayer.report.looks import LAYERS, MASKS
from lastlayer.report.published import SELECTED
from lastlayer.results import Study
from lastlayer.results.tables import deviation, head_name

STREAM = ("features", "scenario", "label")
HEAD = ("head", "mask")


def with_names(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the kind of drift, the title of the stream, and the head as it is typed."""
    places = runs.select("features", "scenario").unique().rows()
    streams = pl.DataFrame(
        [(*place, kind_of(place[1]), title_of(*place)) for place in places],
        schema=dict.fromkeys(("features", "scenario", "kind", "stream"), pl.String),
        orient="row",
    )
    named = runs.with_columns(head_name().alias("name"))
    return named.join(streams, on=["features", "scenario"], maintain_order="left")


def streams(study: Study) -> pl.DataFrame:
    """Give the finished runs on several tasks, one preset for each stream, one rate for each head.

    The preset "paper" goes first where both were run, and a head's own learning rate, or else its
    best one, where there are several.
    """
    runs = with_names(study.done.filter(pl.col("n_tasks") > 1))
    first = runs.group_by(STREAM).agg(pl.col("preset").max())  # "paper" comes after "exact"
    return own_rate(runs.join(first, on=[*STREAM, "preset"], how="semi"))


def own_rate(runs: pl.DataFrame, within: tuple[str, ...] = (*STREAM, "preset")) -> pl.DataFrame:
    """Keep for each head the runs at its own learning rate, or else at its best one."""
    cell = [*within, *HEAD]
    own = pl.col("head").replace_strict(SELECTED, default=None, return_dtype=pl.Float64)
    rates = (
        runs.group_by(*cell, "lr")
        .agg(pl.col("final").mean())
        .with_columns((pl.col("lr") == own).fill_null(False).alias("own"))
        .sort("own", "final", "lr", descending=True, nulls_last=True)
        .unique(cell, keep="first", maintain_order=True)
    )
    return runs.join(rates, on=[*cell, "lr"], how="semi", nulls_equal=True)


def in_order(table: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Sort rows: kinds of drift and heads as the page lists them, all else by its value."""
    places = {"kind": list(KINDS), "head": list(LAYERS), "mask": list(MASKS)}
    keys = [
        pl.col(name).replace_strict(
            {value: place for place, value in enumerate(places[name])}, default=99,
            return_dtype=pl.Int64,
        ) if name in places else pl.col(name)
        for name in by
    ]  # fmt: skip
    return table.sort(keys, nulls_last=True, maintain_order=True)


def percent(column: str) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Give mean and deviation of a share, in percent, and how many runs are in them.

    One run has no deviation.
    """
    value = pl.col(column) * 100
    return (
        value.mean().alias("mean"),
        deviation(value).alias("deviation"),
        value.count().cast(pl.Int64).alias("runs"),
    )
