"""What masking does: averaged over layers (Fig. 5a), and layer by layer (Fig. 5b)."""

import polars as pl

from lastlayer.catalogue import PAPER_HEADS
from lastlayer.report.bars import bars
from lastlayer.report.looks import ALL_LAYERS, paper_layers
from lastlayer.report.looks import masks as all_masks
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic
from lastlayer.report.select import HEAD, STREAM, in_order, streams
from lastlayer.report.sheet import MEAN, Sheet, texts
from lastlayer.report.shown import Table, number, spread, words
from lastlayer.results import Study
from lastlayer.results.tables import deviation


def by_mask(study: Study) -> pl.DataFrame:
    """Average each mask over the paper's layers and the streams of a kind (Fig. 5a).

    Only layers that were run with every mask of the stream are in it.
    """
    runs = streams(study).filter(pl.col("head").is_in(paper_layers(by_gradient=True)))
    masks = pl.col("mask").n_unique()
    runs = runs.filter(masks.over(*STREAM, "head") == masks.over("kind"), masks.over("kind") > 1)
    return in_order(_average(runs, ("kind", "mask")), "kind", "mask")


def by_kind(study: Study) -> pl.DataFrame:
    """Average each head over the streams of a kind; those that have all its heads are in it.

    The paper's heads are averaged among themselves, whatever else there is; all others over the
    streams that have them all.
    """
    runs = streams(study)
    of_paper = pl.col("name").is_in(PAPER_HEADS)
    paper = _over_kinds(runs.filter(of_paper))
    others = _over_kinds(runs).filter(~of_paper)
    return in_order(pl.concat([paper, others]), "kind", *HEAD)


def _over_kinds(runs: pl.DataFrame) -> pl.DataFrame:
    """Average over the streams that have most heads.

    Of several lists of heads that are equally long the last by its names is taken.
    """
    heads = runs.group_by("kind", *STREAM).agg(pl.col("name").unique().sort().alias("heads"))
    heads = heads.sort(pl.col("heads").list.len(), pl.col("heads").list.join(" "))
    fullest = heads.group_by("kind", maintain_order=True).agg(pl.col("heads").last())
    full = heads.join(fullest, on=["kind", "heads"], how="semi")
    runs = runs.join(full, on=["kind", *STREAM], how="semi")
    return _average(runs, ("kind", *HEAD, "name"))


def _average(runs: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """Return the mean over cells of their means; the deviation is that of the mean over orders."""
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


BY_MASK = Sheet("by_mask", texts("kind", "mask") | MEAN | texts("layers", "over"), by_mask)
BY_KIND = Sheet("by_kind", texts("kind", *HEAD, "name") | MEAN | texts("layers", "over"), by_kind)


def section(tables: Tables) -> Section | None:
    """Show masks averaged over all layers for each kind of drift, and layers × masks."""
    averages = tables["by_mask"]
    if averages.is_empty():
        return None
    kinds = averages["kind"].unique(maintain_order=True).to_list()
    paper = pl.col("head").is_in(paper_layers(by_gradient=True))
    heads = tables["by_kind"].filter(paper, pl.col("kind").is_in(kinds))
    layers = averages["layers"].str.split(", ").explode().unique().sort().to_list()
    panels = [
        Panel(
            f"Each mask averaged over streams and over {' and '.join(layers)}; lines are "
            f"deviations over orders of the tasks. (Fig. 5a) {over(averages)}",
            [Figure(("masks",), "Masks, averaged over layers", *_by_mask(averages))],
        ),
        Panel(
            f"Layers × masks, averaged over streams. (Fig. 5b) {over(heads)}",
            [
                Figure(("layers-and-masks", str(kind)), str(kind), *_layers(part))
                for (kind,), part in heads.group_by("kind", maintain_order=True)
            ],
        ),
    ]
    text = (
        "Masking is a change of the loss in training: single lets only the sample's own class "
        "learn, group all classes of the mini-batch. A full bar with a solid outline is unmasked, "
        "a dashed one is group, a dotted one single."
    )
    return Section(
        "masks", "What masking does", [text], panels, [_table(averages), _heads_table(heads)]
    )


TOPIC = Topic(section, needs=[BY_MASK, BY_KIND])


def over(table: pl.DataFrame) -> str:
    """Say which data sets are in the averages of each kind."""
    parts = table.group_by("kind", maintain_order=True).agg(pl.col("over").first()).rows()
    return " ".join(f"In {kind}: {over}." for kind, over in parts)


def _by_mask(table: pl.DataFrame) -> Plot:
    table = table.with_columns(pl.lit(ALL_LAYERS).alias("head"), pl.col("mask").alias("name"))
    kinds = table["kind"].unique(maintain_order=True).to_list()
    return bars(table, "kind", kinds, height=75 * len(kinds), offset="mask")


def _layers(part: pl.DataFrame) -> Plot:
    layers = part["head"].unique(maintain_order=True).to_list()
    return bars(part, "head", layers, height=52 * len(layers), offset="mask")


def _table(table: pl.DataFrame) -> Table:
    rows = [
        [words(row["kind"]), words(row["mask"]), spread(row["mean"], row["deviation"]),
         number(row["runs"], digits=0), words(row["layers"]), words(row["over"])]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    header = ("drift", "mask", "final accuracy, %", "runs", "layers in it", "streams in it")
    return Table(("masks",), "Masks averaged over layers and streams (Fig. 5a).", header, rows)


def _heads_table(table: pl.DataFrame) -> Table:
    rows = []
    for (kind, head), part in table.group_by("kind", "head", maintain_order=True):
        by = {row["mask"]: spread(row["mean"], row["deviation"]) for row in part.to_dicts()}
        cells = (by.get(mask, words("")) for mask in all_masks())
        rows.append([words(str(kind)), words(str(head)), *cells])
    header = ("drift", "layer", "no mask", *all_masks()[1:])
    caption = "Layers × masks: final accuracy in %, averaged over streams (Fig. 5b)."
    return Table(("layers-and-masks",), caption, header, rows)
