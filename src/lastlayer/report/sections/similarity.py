"""The best layers trained by gradient against those that compare with what they saw (Fig. 5c)."""

import polars as pl

from lastlayer.report.bars import bars
from lastlayer.report.chart import sized, with_band
from lastlayer.report.looks import SIMILARITY, place_of
from lastlayer.report.section import Figure, Panel, Section, Tables, file_name, rows_of
from lastlayer.report.sections.masks import FIELDS, highest, over
from lastlayer.report.shown import Table, spread, words

BEST = ("linear", "weight_norm", "cosine+single")


def similarity(tables: Tables) -> Section | None:
    """Show both side by side, for each kind of drift."""
    table = tables["by_kind"].filter(pl.col("name").is_in([*BEST, *SIMILARITY])).drop_nulls("mean")
    names = set(table["name"])
    if not (names & set(SIMILARITY) and names & set(BEST)):
        return None
    figures = []
    for (kind,), part in table.group_by("kind", maintain_order=True):
        order = sorted(part["name"], key=place_of)
        rows = rows_of(with_band(part), *FIELDS)
        chart = sized(bars("name", order, highest(rows)), 30 * len(order) + 20)
        figures.append(Figure(file_name("similarity", str(kind)), str(kind), chart, rows))
    caption = f"Averaged over streams; lines are deviations over orders. (Fig. 5c) {over(table)}"
    text = (
        "knn, mean, median and slda need no gradient and see each sample once. The others are the "
        "paper's best gradient layers, weight_norm and cosine+single, and linear."
    )
    section = "Gradient layers and similarity-based ones"
    return Section("similarity", section, [text], [Panel(caption, figures)], [_table(table)])


def _table(table: pl.DataFrame) -> Table:
    kinds = table["kind"].unique(maintain_order=True).to_list()
    rows = []
    for name in sorted(table["name"].unique(), key=place_of):
        by = {row["kind"]: row for row in table.filter(name=name).iter_rows(named=True)}
        cells = (spread(by[k]["mean"], by[k]["deviation"]) if k in by else words("") for k in kinds)
        rows.append([words(name), *cells])
    caption = "Final accuracy in %, averaged over the streams of each kind of drift (Fig. 5c)."
    return Table("similarity", caption, ("head", *kinds), rows)
