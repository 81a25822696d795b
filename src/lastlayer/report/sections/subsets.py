"""How heads fare with little data (Fig. 6, tables 1 and 4)."""

import altair as alt
import polars as pl

from lastlayer.report.chart import heads_of, hidden_of, sized, told, with_band
from lastlayer.report.lines import lines
from lastlayer.report.looks import GRADIENT
from lastlayer.report.section import Figure, Panel, Plot, Row, Section, Tables, file_name, rows_of
from lastlayer.report.shown import Cell, Table, spread, words
from lastlayer.report.tables.iid import SET
from lastlayer.report.tables.iid import subsets as in_subsets

FIELDS = ("head", "mask", "name", "size", "mean", "deviation", "low", "high", "runs", "end",
          "published_mean")  # fmt: skip
AVERAGE = "averaged over data sets"


def subsets(tables: Tables) -> Section | None:
    """Show accuracy over the number of samples, averaged over data sets and for each of them."""
    table = in_subsets(tables["iid"]).drop_nulls("mean")
    if table.is_empty():
        return None
    average = tables["subset_average"]
    panels = []
    if not average.is_empty():
        panels = [_average(average), *_masking(average)]
    heads = heads_of(table)
    hidden = hidden_of(heads)
    figures = [
        Figure(
            file_name("subsets", *map(str, key)), ", ".join(map(str, key)), *_chart(part, hidden)
        )
        for key, part in table.group_by(SET, maintain_order=True)
    ]
    caption = "Each data set: mean and deviation over seeds. (tables 1, 4)"
    panels.append(Panel(caption, figures, heads, hidden))
    text = (
        "All classes at once, but few samples, drawn with replacement. Gradient heads see a subset "
        "as often as makes up for its size. Published numbers stand in brackets and in the "
        "tooltips; a ~ marks one with a deviation of 5 or more: nothing can be compared with it."
    )
    shown = [_table(*each) for each in _parts(table)]
    if not average.is_empty():
        shown.insert(0, _table(AVERAGE, average.with_columns(pl.lit(None).alias("verdict"))))
    return Section("subsets", "With little data", [text], panels, shown)


def _average(table: pl.DataFrame) -> Panel:
    heads = heads_of(table)
    # The masks have a panel of their own; here only the one that the paper recommends.
    hidden = [n for n in heads if n in hidden_of(heads) or (n != "cosine+single" and "+" in n)]
    caption = f"Averaged over data sets: {table['over'][0]}. (Fig. 6, left)"
    figure = Figure("subsets-average", "All layers", *_chart(table, hidden))
    return Panel(caption, [figure], heads, hidden)


def _masking(table: pl.DataFrame) -> list[Panel]:
    part = table.filter(pl.col("head").is_in(GRADIENT))
    part = part.filter((pl.col("mask").n_unique() > 1).over("head"))
    if part.is_empty():
        return []
    caption = f"Gradient layers with and without mask, over {part['over'][0]}. (Fig. 6, right)"
    figure = Figure("subsets-masking", "Masking", *_chart(part, []))
    return [Panel(caption, [figure], heads_of(part))]


def _chart(part: pl.DataFrame, hidden: list[str]) -> Plot:
    sizes = part["subset"].unique().sort(nulls_last=True).to_list()
    size = pl.col("subset").cast(pl.String).fill_null("all")
    part = with_band(part).with_columns(size.alias("size"), pl.lit(True).alias("end"))
    order = ["all" if value is None else str(value) for value in sizes]
    x = alt.X("size:O", title="training samples", sort=order, axis=alt.Axis(labelAngle=0))
    published = alt.Tooltip("published_mean:Q", title="published")
    tooltip = [*told(("name:N", "head"), ("size:O", "samples")), published]
    return sized(lines(x, heads_of(part), hidden, tooltip)), rows_of(part, *FIELDS)


def _parts(table: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    return [
        (", ".join(map(str, key)), part) for key, part in table.group_by(SET, maintain_order=True)
    ]


def _table(title: str, part: pl.DataFrame) -> Table:
    sizes = part["subset"].unique().sort(nulls_last=True).to_list()
    rows = []
    for name in heads_of(part):
        by = {row["subset"]: row for row in part.filter(name=name).iter_rows(named=True)}
        rows.append([words(name), *(beside(by[s]) if s in by else Cell("") for s in sizes)])
    header = ("head", *("all" if size is None else f"{size} samples" for size in sizes))
    caption = f"{title}: accuracy in %, mean ± deviation over seeds (published in brackets)."
    return Table(file_name("subsets", title), caption, header, rows)


def beside(row: Row) -> Cell:
    """Give our number with the published one in brackets."""
    mean = row["published_mean"]
    note = "" if mean is None else f" ({mean:.2f}{'~' if row['verdict'] == 'wide' else ''})"
    return spread(row["mean"], row["deviation"], note)
