"""What would repair what each head lost; and what it kept, gained and never learned."""

import altair as alt
import polars as pl

from lastlayer.analysis import FATES, INTERFERENCE, REPAIRS
from lastlayer.report.charts import DATA, sized, told
from lastlayer.report.looks import heads_of
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream, rows_of
from lastlayer.report.select import HEAD, STREAM, WHAT, in_order, percent, streams
from lastlayer.report.sheet import MEAN, Sheet, texts
from lastlayer.report.table import Cell, Table, number, words
from lastlayer.results import Study

_WORDS = {
    "kept": "kept",
    "lost": "lost",
    "gained": "gained",
    "never_learned": "never learned",
    "old_vectors": "its old vectors",
    "no_later_classes": "no later classes",
    "either": "either",
    "both": "only both",
    "size": "their norm or bias",
    "direction": "their direction",
}
# Column of the store → what is counted there, in words.
OF_FATES = {name: _WORDS[name] for name in FATES}
OF_REPAIRS = {f"repair_{name}": _WORDS[name] for name in REPAIRS}
OF_INTERFERENCE = {f"interference_{name}": _WORDS[name] for name in INTERFERENCE}
COLUMNS = (*OF_FATES, *OF_REPAIRS, *OF_INTERFERENCE)
COLOURS = ("#1b1b3a", "#5b5b8c", "#9fa3c4", "#e3d9b0")  # of no layer; dark to light


def repairs(study: Study) -> pl.DataFrame:
    """Return the test samples by what became of them and what would repair the lost ones.

    In percent of the test set, mean and deviation over orders.
    """
    runs = streams(study).drop_nulls("lost")
    sizes = {digest: int(n.sum()) for digest, n in study.arrays("n_per_class", runs).items()}
    size = pl.col("digest").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    long = (
        runs.with_columns(size.alias("size"))
        .unpivot(
            COLUMNS,
            index=[*WHAT, "size", "order", "seed"],
            variable_name="what",
            value_name="samples",
        )
        .drop_nulls("samples")  # results of before do not know all of them
        .with_columns(pl.col("samples").cast(pl.Float64) * 100 / pl.col("size").cast(pl.Float64))
    )
    table = long.group_by(*WHAT, "what", maintain_order=True).agg(percent("samples", times=1))
    return in_order(table, "kind", *STREAM, *HEAD)


SHEET = Sheet("repairs", texts(*WHAT, "what") | MEAN, repairs)


def section(tables: Tables) -> Section | None:
    """Show what would repair the lost samples, and beside them what became of all."""
    table = tables["repairs"].drop_nulls("mean")
    for what in set(table["what"]) - {*COLUMNS}:
        raise ValueError(f"the column 'what' must hold one of {', '.join(COLUMNS)}, got {what!r}")
    lost = table.filter(pl.col("what").is_in(list(OF_REPAIRS)))
    if lost.is_empty():
        return None
    figures = [Figure(("repairs", title), title, *_chart(part)) for title, part in by_stream(lost)]
    text = (
        "A test sample is lost if it was right when its class was learned and is wrong at the end. "
        "It is tried again with its old vectors (each class gets the vector it had when it was "
        "learned), and with no later classes (those that came since are removed). Either: each of "
        "the two repairs it. Only both: neither alone does. Heads that are not linear in the "
        "features have no vectors to try.",
        "A head that learns nothing loses nothing: what was gained, and what was never learned, "
        "stand beside it. Where no later classes would repair a sample, they win by their norm or "
        "bias if giving them those of the sample's own class makes it right, else by their "
        "direction.",
    )
    caption = (
        "Test samples lost by the end, by what would repair them, in percent of the test set; mean "
        "over orders."
    )
    tables_shown = [
        make(title, part)
        for title, part in by_stream(table)
        for make in (_by_repair, _fates, _shares)
    ]
    title = "What would repair what was lost"
    return Section("repairs", title, text, [Panel(caption, figures)], tables_shown)


TOPIC = Topic(section, needs=[SHEET])


def _chart(part: pl.DataFrame) -> Plot:
    heads, order = heads_of(part), list(OF_REPAIRS.values())
    place = pl.col("what").replace_strict(
        {column: i for i, column in enumerate(OF_REPAIRS)}, return_dtype=pl.Int64
    )
    repair = pl.col("what").replace_strict(OF_REPAIRS).alias("repair")
    fields = ("name", "repair", "place", "mean", "deviation", "runs")
    rows = rows_of(part.with_columns(place.alias("place"), repair), *fields)
    legend = alt.Legend(orient="top", title="repaired by", columns=2)
    chart = alt.Chart(DATA).mark_bar(stroke="black", strokeWidth=0.5).encode(
        x=alt.X("mean:Q", stack="zero", title="lost, % of the test set"),
        y=alt.Y("name:N", sort=heads, title=None),
        color=alt.Color(
            "repair:N", scale=alt.Scale(domain=order, range=list(COLOURS)), legend=legend
        ),
        order=alt.Order("place:Q"),
        tooltip=told(("name:N", "head"), ("repair:N", "repaired by")),
    )  # fmt: skip
    return sized(chart, height=19 * len(heads) + 10), rows


def _found(part: pl.DataFrame, name: str) -> dict[str, float]:
    return dict(part.filter(name=name).select("what", "mean").rows())


def _by_repair(title: str, part: pl.DataFrame) -> Table:
    rows: list[list[Cell]] = []
    for name in heads_of(part):
        mine = _found(part, name)
        lost = sum(mine.get(column, 0.0) for column in OF_REPAIRS)
        rows.append([words(name), number(lost), *(number(mine.get(c)) for c in OF_REPAIRS)])
    header = ("head", "lost, %", *(f"repaired by {what}" for what in OF_REPAIRS.values()))
    caption = f"{title}: samples lost by the end, in % of the test set, by what would repair them."
    return Table(("repairs", title), caption, header, rows)


def _fates(title: str, part: pl.DataFrame) -> Table:
    rows = [
        [words(name), *(number(_found(part, name).get(column)) for column in OF_FATES)]
        for name in heads_of(part)
    ]
    caption = f"{title}: what became of the samples by the end, in % of the test set."
    return Table(("fates", title), caption, ("head", *OF_FATES.values()), rows)


def _shares(title: str, part: pl.DataFrame) -> Table:
    """Divide what was lost between the two repairs; what either or only both repair in halves."""
    rows = []
    for name in heads_of(part):
        mine = _found(part, name)
        old, later, either, both = (mine.get(column, 0.0) for column in OF_REPAIRS)
        lost, halves = old + later + either + both, (either + both) / 2
        hidden = [mine.get(column) for column in OF_INTERFERENCE]
        known = sum(value for value in hidden if value is not None)
        shares = [100 * (part + halves) / lost for part in (old, later)] if lost else [None, None]
        split = [None if h is None or not known else 100 * h / known for h in hidden]
        rows.append([words(name), *(number(value, digits=1) for value in (*shares, *split))])
    header = ("head", "its old vectors, % of the loss", "no later classes, % of the loss",
              *(f"they win by {what}, %" for what in OF_INTERFERENCE.values()))  # fmt: skip
    caption = (
        f"{title}: Shapley shares of the two repairs in what was lost, and by what later classes "
        "win where their removal repairs."
    )
    return Table(("repair-shares", title), caption, header, rows)
