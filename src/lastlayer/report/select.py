"""Which runs the figures are about, and the order of their rows."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from lastlayer.catalogue.head_cards import CODES, HEADS
from lastlayer.report.data_names import MEANING, drift_name, of_the_paper, titles_of
from lastlayer.report.looks import masks
from lastlayer.report.sheet import clean
from lastlayer.results import Study
from lastlayer.results.tables import deviation, head_name

STREAM = ("features", "scenario", "label")
HEAD = ("head", "mask")
WHAT = (*STREAM, "kind", *HEAD, "name")  # a head on a stream
OPTIONS = ("start", "gain", "batch_size")  # what a plan can choose for all heads of a block


def with_names(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the kind of drift, the title of the stream, and the head as it is typed."""
    places = runs.select("features", "scenario").unique().rows()
    titles = zip(places, titles_of(places), strict=True)
    streams = pl.DataFrame(
        [(*place, drift_name(place[1]), title) for place, title in titles],
        schema=dict.fromkeys(("features", "scenario", "kind", "stream"), pl.String),
        orient="row",
    )
    named = runs.with_columns(head_name().alias("name"))
    return named.join(streams, on=["features", "scenario"], maintain_order="left")


def streams(study: Study) -> pl.DataFrame:
    """Return the finished runs on several tasks: one preset a stream, one set of options a head.

    Where both presets were run, these are the runs of "paper"; where there are several learning
    rates, those of the head's default one, or else of its best; and those of its own start and
    gain.
    """
    return own_options(every_option(study))


def every_option(study: Study) -> pl.DataFrame:
    """Return the runs of ``streams``, with every start and gain that was run."""
    return own_rate(one_preset(with_names(study.done.filter(pl.col("n_tasks") > 1)), STREAM))


def one_preset(runs: pl.DataFrame, within: Sequence[str]) -> pl.DataFrame:
    """Keep the runs of "paper", which comes after "exact", where both presets were run."""
    first = runs.group_by(within).agg(pl.col("preset").max())
    return runs.join(first, on=[*within, "preset"], how="semi")


def own_options(
    runs: pl.DataFrame, within: tuple[str, ...] = (*STREAM, "preset", *HEAD, "lr")
) -> pl.DataFrame:
    """Keep each head's runs of one start, gain and batch size: the default, or what there is."""
    # The options of this code are the defaults of every head.
    first = CODES["may"]
    free = [name for name in OPTIONS if name not in within]
    found = runs.select(*within, *free).unique(maintain_order=True)
    usual = [pl.col(name) != getattr(first, name) for name in free]
    found = found.sort(*usual, *free, maintain_order=True).unique(within, keep="first")
    return runs.join(found, on=[*within, *free], how="semi", nulls_equal=True)


def order_0(study: Study) -> pl.DataFrame:
    """Return each head's run on each stream in the first order of the tasks."""
    runs = streams(study).filter(order=0)
    return runs.unique([*STREAM, *HEAD], keep="first", maintain_order=True)


def own_rate(runs: pl.DataFrame, within: tuple[str, ...] = (*STREAM, "preset")) -> pl.DataFrame:
    """Keep each head's runs at its default learning rate, or else at its best one."""
    cell = [*within, *HEAD]
    rates = {name: card.lr for name, card in HEADS.items()}
    own = pl.col("head").replace_strict(rates, default=None, return_dtype=pl.Float64)
    first = (
        runs.group_by(*cell, "lr")
        .agg(pl.col("final").mean())
        .with_columns((pl.col("lr") == own).fill_null(False).alias("own"))
        .sort("own", "final", "lr", descending=True, nulls_last=True)
        .unique(cell, keep="first", maintain_order=True)
    )
    return runs.join(first, on=[*cell, "lr"], how="semi", nulls_equal=True)


def in_order(table: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Sort rows: own data first, kinds of drift and heads as the page lists them, else by value."""
    listed = {"kind": list(MEANING), "head": list(HEADS), "mask": masks()}
    own_first = pl.col("features").map_elements(of_the_paper, pl.Boolean)
    keys = [own_first] if "features" in by else []
    for name in by:
        column = pl.col(name)
        if name in listed:
            places = {value: place for place, value in enumerate(listed[name])}
            keys.append(column.replace_strict(places, default=len(places), return_dtype=pl.Int64))
        keys.append(column)  # those that are not listed stand by their values too
    return table.sort(keys, nulls_last=True, maintain_order=True)


def percent(column: str, times: float = 100) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return mean and deviation of a share, in percent, and how many runs are in them."""
    value = pl.col(column) * times
    return (
        value.mean().alias("mean"),
        deviation(value).alias("deviation"),
        value.count().cast(pl.Int64).alias("runs"),
    )


def class_names(study: Study, run: dict[str, Any]) -> list[tuple[int, str]]:
    """Return the number and the name of each class that a run learns."""
    data = study.data.get(run["features"])
    known = data.names.get(run["label"], []) if data else []
    return [
        (c, clean(str(known[c])) if c < len(known) else str(c)) for c in range(run["n_classes"])
    ]
