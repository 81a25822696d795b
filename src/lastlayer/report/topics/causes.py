"""Why each head loses what it knew: changed vectors, later classes, or both."""

import altair as alt
import polars as pl

from lastlayer.report.chart import DATA, heads_of, sized, told
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream, rows_of
from lastlayer.report.select import HEAD, STREAM, in_order, streams
from lastlayer.report.sheet import MEAN, Sheet, texts
from lastlayer.report.shown import Table, number, words
from lastlayer.results import Study
from lastlayer.results.tables import deviation

CAUSES = {  # column of the store → the cause in words
    "lost_to_weights": "changed vectors",
    "lost_to_interference": "later classes",
    "lost_to_either": "either alone",
    "lost_together": "both together",
}
COLOURS = ("#1b1b3a", "#5b5b8c", "#9fa3c4", "#e3d9b0")  # of no layer; dark to light


def causes(study: Study) -> pl.DataFrame:
    """Return the test samples lost to each cause, in percent of the test set, mean over orders."""
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


SHEET = Sheet("causes", texts(*STREAM, "kind", *HEAD, "name", "cause") | MEAN, causes)


def section(tables: Tables) -> Section | None:
    """Show the share of test samples lost to each cause."""
    table = tables["causes"].drop_nulls("mean")
    if table.is_empty():
        return None
    figures = [Figure(("causes", title), title, *_chart(part)) for title, part in by_stream(table)]
    text = (
        "A test sample is lost if it was right when its class was learned and is wrong at the end. "
        "Lost to changed vectors: right again with the vectors of then. Lost to later classes: "
        "right again without them. Either alone: each of both repairs is enough. Both together: "
        "only both repairs are. Heads that are not linear in the features have no such causes."
    )
    caption = (
        "Test samples lost by the end, by cause, in percent of the test set; mean over orders."
    )
    shown = [_table(title, part) for title, part in by_stream(table)]
    return Section("causes", "Why heads forget", [text], [Panel(caption, figures)], shown)


TOPIC = Topic(section, needs=[SHEET])


def _chart(part: pl.DataFrame) -> Plot:
    heads, order = heads_of(part), list(CAUSES.values())
    place = pl.col("cause").replace_strict(
        {c: i for i, c in enumerate(order)}, return_dtype=pl.Int64
    )
    fields = ("name", "cause", "place", "mean", "deviation", "runs")
    rows = rows_of(part.with_columns(place.alias("place")), *fields)
    legend = alt.Legend(orient="top", title="lost to", columns=2)
    chart = alt.Chart(DATA).mark_bar(stroke="black", strokeWidth=0.5).encode(
        x=alt.X("mean:Q", stack="zero", title="lost, % of the test set"),
        y=alt.Y("name:N", sort=heads, title=None),
        color=alt.Color(
            "cause:N", scale=alt.Scale(domain=order, range=list(COLOURS)), legend=legend
        ),
        order=alt.Order("place:Q"),
        tooltip=told(("name:N", "head"), ("cause:N", "lost to")),
    )  # fmt: skip
    return sized(chart, height=19 * len(heads) + 10), rows


def _table(title: str, part: pl.DataFrame) -> Table:
    rows = []
    for name in heads_of(part):
        mine = dict(part.filter(name=name).select("cause", "mean").rows())
        cells = (number(mine.get(cause)) for cause in CAUSES.values())
        rows.append([words(name), number(sum(mine.values())), *cells])
    header = ("head", "lost, %", *(f"to {cause}" for cause in CAUSES.values()))
    caption = f"{title}: test samples lost by the end, in % of the test set, mean over orders."
    return Table(("causes", title), caption, header, rows)
