"""Accuracy at the end of a stream, for each head and on average over streams (Fig. 4, 5)."""

import polars as pl

from lastlayer.report.looks import GRADIENT
from lastlayer.report.tables.select import HEAD, STREAM, in_order, percent, streams
from lastlayer.results import Study
from lastlayer.results.tables import deviation

MEASURES = ("average", "forgetting", "backward_transfer", "forward_transfer")
WHAT = (*STREAM, "kind", "preset", *HEAD, "name", "lr", "n_classes", "n_tasks")


def accuracy(study: Study) -> pl.DataFrame:
    """Give mean and deviation over orders of the final accuracy, and the continual measures."""
    whole = pl.col("diverged").is_null()  # what a run did until it diverged says nothing
    table = (
        streams(study)
        .group_by(WHAT)
        .agg(
            *percent("final"),
            pl.col("diverged").count().cast(pl.Int64),
            *((pl.col(name) * 100).filter(whole).mean() for name in MEASURES),
        )
    )
    return in_order(table, "kind", *STREAM, *HEAD)


def by_kind(study: Study) -> pl.DataFrame:
    """Average each head over the streams of a kind; those that have all its heads are in it.

    Of several lists of heads that are equally long the last by its names is taken.
    """
    runs = streams(study)
    heads = runs.group_by("kind", *STREAM).agg(pl.col("name").unique().sort().alias("heads"))
    heads = heads.sort(pl.col("heads").list.len(), pl.col("heads").list.join(" "))
    fullest = heads.group_by("kind", maintain_order=True).agg(pl.col("heads").last())
    full = heads.join(fullest, on=["kind", "heads"], how="semi")
    runs = runs.join(full, on=["kind", *STREAM], how="semi")
    return in_order(_average(runs, ("kind", *HEAD, "name")), "kind", *HEAD)


def by_mask(study: Study) -> pl.DataFrame:
    """Average each mask over layers and the streams of a kind (Fig. 5a).

    Only layers that were run with every mask of the stream are in it.
    """
    runs = streams(study).filter(pl.col("head").is_in(GRADIENT))
    masks = pl.col("mask").n_unique()
    runs = runs.filter(masks.over(*STREAM, "head") == masks.over("kind"), masks.over("kind") > 1)
    return in_order(_average(runs, ("kind", "mask")), "kind", "mask")


def _average(runs: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """Give the mean over cells of their means; the deviation is that of the mean over orders."""
    cell = pl.concat_str(*STREAM, "head", separator=" ")
    cells = runs.with_columns(cell.alias("cell"), (pl.col("final") * 100).alias("percent"))
    means = cells.group_by(*by, "cell", maintain_order=True).agg(
        pl.col("percent").mean().alias("mean")
    )
    about = cells.group_by(by).agg(
        pl.col("percent").count().cast(pl.Int64).alias("runs"),
        pl.col("cell").n_unique().alias("cells"),
        pl.col("head").unique().sort().str.join(", ").alias("layers"),
        pl.col("stream").unique().sort().str.join("; ").alias("over"),
    )
    table = means.group_by(by).agg(pl.col("mean").mean()).join(about, on=by)
    orders = cells.drop_nulls("percent").group_by(*by, "order", maintain_order=True).agg(
        pl.col("percent").mean(), pl.col("cell").n_unique().alias("cells")
    )  # fmt: skip
    whole = orders.join(about, on=[*by, "cells"], how="semi")  # an order that every cell has
    spread = whole.group_by(by).agg(deviation(pl.col("percent")).alias("deviation"))
    return table.join(spread, on=by, how="left").select(
        *by, "mean", "deviation", "runs", "layers", "over"
    )
