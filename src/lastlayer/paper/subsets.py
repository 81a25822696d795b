"""How heads fare with little data (Fig. 6, tables 1 and 4)."""

import altair as alt
import polars as pl

from lastlayer.paper.preliminary import (
    IID,
    SET,
    iid,
    in_brackets,
    named_sets,
    with_published,
)
from lastlayer.report.charts import lines, told
from lastlayer.report.data_names import cited, data_name
from lastlayer.report.looks import heads_of, hidden_of, paper_layers
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic
from lastlayer.report.select import HEAD, in_order, own_rate
from lastlayer.report.sheet import MEAN, Sheet, integers, numbers, texts
from lastlayer.report.table import Table, across, words
from lastlayer.results import Study

AVERAGE = "averaged over data sets"
CELL = texts(*HEAD, "name") | integers("subset")


def subset_average(study: Study) -> pl.DataFrame:
    """Average over the data sets that have all heads and sizes (Fig. 6).

    The published average is given where each of its numbers was published and is not wide.
    """
    table = _in_subsets(iid(study))
    cell = list(CELL)
    cells = pl.struct(cell).n_unique()
    table = table.with_columns(*named_sets()).filter(cells.over("set") == cells)
    narrow = (pl.col("verdict") != "wide").fill_null(False).all()
    averages = table.group_by(cell).agg(
        pl.col("mean").mean(),
        pl.when(pl.col("deviation").is_not_null().all())
        .then((pl.col("deviation") ** 2).sum().sqrt() / pl.len())
        .alias("deviation"),
        pl.col("runs").sum(),
        pl.when(narrow).then(pl.col("published_mean").mean()).alias("published_mean"),
        pl.col("called").sort().str.join("; ").alias("over"),
    )
    return in_order(averages, *HEAD, "subset")


SHEET = Sheet(
    "subset_average", CELL | MEAN | numbers("published_mean") | texts("over"), subset_average
)


def _in_subsets(table: pl.DataFrame) -> pl.DataFrame:
    """Keep of ``iid`` the data sets that were tried in subsets, each head at one learning rate."""
    table = table.filter(pl.col("subset").is_not_null().any().over(SET))
    named = table.rename({"mean": "final"})
    return own_rate(named, (*SET, "preset", "subset")).rename({"final": "mean"})


def section(tables: Tables) -> Section | None:
    """Show accuracy over the number of samples, averaged over data sets and for each of them."""
    table = _in_subsets(tables["iid"]).drop_nulls("mean")
    if table.is_empty():
        return None
    average = tables["subset_average"]
    heads = heads_of(table)
    hidden = hidden_of(heads)
    parts = [(tuple(map(str, key)), part) for key, part in table.group_by(SET, maintain_order=True)]
    figures = [
        Figure(("subsets", *key), _title(*key), *_chart(part, hidden)) for key, part in parts
    ]
    caption = "Each data set: mean and deviation over seeds." + cited("tables 1, 4", table)
    each = Panel(caption, figures, heads, hidden)
    text = (
        "All classes at once, but few samples, drawn with replacement. Gradient heads see a subset "
        "as often as makes up for its size."
    )
    if table["published_mean"].count():
        text += (
            " Published numbers stand in brackets and in the tooltips; a ~ marks one with a "
            "deviation of 5 or more: nothing can be compared with it."
        )
    shown = [_table(_title(*key), part) for key, part in parts]
    if average.height:
        shown.insert(0, _table(AVERAGE, average.with_columns(pl.lit(None).alias("verdict"))))
    whole = cited("Fig. 6", table)
    panels = [*_average(average, whole), *_masking(average, whole), each]
    return Section("subsets", "With little data", [text], panels, shown)


TOPIC = Topic(section, needs=[IID], also=[SHEET])


def _title(features: str, label: str) -> str:
    return f"{data_name(features)}, {label}"


def _average(table: pl.DataFrame, where: str) -> list[Panel]:
    if table.is_empty():
        return []
    heads = heads_of(table)
    # The masks have a panel of their own; here only the one that the paper recommends.
    hidden = [n for n in heads if n in hidden_of(heads) or (n != "cosine+single" and "+" in n)]
    caption = f"Averaged over data sets: {table['over'][0]}.{where}"
    figure = Figure(("subsets-average",), "All layers", *_chart(table, hidden))
    return [Panel(caption, [figure], heads, hidden)]


def _masking(table: pl.DataFrame, where: str) -> list[Panel]:
    part = table.filter(pl.col("head").is_in(paper_layers(by_gradient=True)))
    part = part.filter((pl.col("mask").n_unique() > 1).over("head"))
    if part.is_empty():
        return []
    caption = f"Gradient layers with and without mask, over {part['over'][0]}.{where}"
    figure = Figure(("subsets-masking",), "Masking", *_chart(part, []))
    return [Panel(caption, [figure], heads_of(part))]


def _chart(part: pl.DataFrame, hidden: list[str]) -> Plot:
    sizes = part["subset"].unique().sort(nulls_last=True).to_list()
    size = pl.col("subset").cast(pl.String).fill_null("all")
    part = part.with_columns(size.alias("size"))
    order = ["all" if value is None else str(value) for value in sizes]
    x = alt.X("size:O", title="training samples", sort=order, axis=alt.Axis(labelAngle=0))
    published = alt.Tooltip("published_mean:Q", title="published")
    tooltip = told(("name:N", "head"), ("size:O", "samples"))
    if part["published_mean"].count():
        tooltip.append(published)
    return lines(part, x, "size", tooltip, "published_mean", hidden=hidden)


def _table(title: str, part: pl.DataFrame) -> Table:
    sizes = part["subset"].unique().sort(nulls_last=True).to_list()
    rows = [
        [words(name), *across(part.filter(name=name), "subset", sizes, with_published)]
        for name in heads_of(part)
    ]
    header = ("head", *("all" if size is None else f"{size} samples" for size in sizes))
    known = in_brackets(part)
    caption = f"{title}: accuracy in %, mean ± deviation over seeds{known}."
    return Table(("subsets", title), caption, header, rows)
