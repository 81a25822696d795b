"""What masking does: averaged over layers (Fig. 5a), and layer by layer (Fig. 5b)."""

import polars as pl

from lastlayer.report.bars import bars
from lastlayer.report.chart import sized, with_band
from lastlayer.report.looks import ALL_LAYERS, GRADIENT, MASKS
from lastlayer.report.section import Figure, Panel, Plot, Row, Section, Tables, file_name, rows_of
from lastlayer.report.shown import Table, number, spread, words

FIELDS = ("head", "mask", "name", "mean", "deviation", "low", "high", "runs")


def masks(tables: Tables) -> Section | None:
    """Show masks averaged over all layers for each kind of drift, and layers × masks."""
    averages, heads = tables["by_mask"], tables["by_kind"].filter(pl.col("head").is_in(GRADIENT))
    if averages.is_empty():
        return None
    kinds = averages["kind"].unique(maintain_order=True).to_list()
    heads = heads.filter(pl.col("kind").is_in(kinds))
    layers = averages["layers"].str.split(", ").explode().unique().sort().to_list()
    panels = [
        Panel(
            f"Each mask averaged over streams and over {' and '.join(layers)}; lines are "
            f"deviations over orders of the tasks. (Fig. 5a) {over(averages)}",
            [Figure("masks", "Masks, averaged over layers", *_by_mask(averages))],
        ),
        Panel(
            f"Layers × masks, averaged over streams. (Fig. 5b) {over(heads)}",
            [
                Figure(file_name("layers-and-masks", str(kind)), str(kind), *_layers(part))
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


def _by_mask(table: pl.DataFrame) -> Plot:
    table = with_band(table).with_columns(
        pl.lit(ALL_LAYERS).alias("head"), pl.col("mask").alias("name")
    )
    kinds = table["kind"].unique(maintain_order=True).to_list()
    rows = rows_of(table, *FIELDS, "kind")
    return sized(bars("kind", kinds, highest(rows), offset="mask"), height=75 * len(kinds)), rows


def _layers(part: pl.DataFrame) -> Plot:
    layers = part["head"].unique(maintain_order=True).to_list()
    rows = rows_of(with_band(part), *FIELDS)
    return sized(bars("head", layers, highest(rows), offset="mask"), height=52 * len(layers)), rows


def highest(rows: list[Row]) -> float:
    """Give the highest end of all bars."""
    return max(float(row["high"]) for row in rows)


def over(table: pl.DataFrame) -> str:
    """Say which data sets are in the averages of each kind."""
    parts = table.group_by("kind", maintain_order=True).agg(pl.col("over").first()).rows()
    return " ".join(f"In {kind}: {over}." for kind, over in parts)


def _table(table: pl.DataFrame) -> Table:
    rows = [
        [words(row["kind"]), words(row["mask"]), spread(row["mean"], row["deviation"]),
         number(row["runs"], digits=0), words(row["layers"]), words(row["over"])]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    header = ("drift", "mask", "final accuracy, %", "runs", "layers in it", "streams in it")
    return Table("masks", "Masks averaged over layers and streams (Fig. 5a).", header, rows)


def _heads_table(table: pl.DataFrame) -> Table:
    rows = []
    for (kind, head), part in table.group_by("kind", "head", maintain_order=True):
        by = {row["mask"]: row for row in part.iter_rows(named=True)}
        cells = (spread(by[m]["mean"], by[m]["deviation"]) if m in by else words("") for m in MASKS)
        rows.append([words(str(kind)), words(str(head)), *cells])
    header = ("drift", "layer", "no mask", "group", "single")
    caption = "Layers × masks: final accuracy in %, averaged over streams (Fig. 5b)."
    return Table("layers-and-masks", caption, header, rows)
