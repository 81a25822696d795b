"""The best layers trained by gradient against those that compare with what they saw (Fig. 5c).

Heads that the paper does not know have a figure of their own beside it.
"""

import polars as pl

from lastlayer.catalogue import PAPER_HEADS
from lastlayer.report.bars import bars
from lastlayer.report.chart import heads_of
from lastlayer.report.looks import paper_layers
from lastlayer.report.published import cited
from lastlayer.report.section import Figure, Panel, Section, Tables, Topic
from lastlayer.report.shown import Table, spread, words
from lastlayer.report.topics.masks import BY_KIND, over, starts_of
from lastlayer.report.topics.streams import ACCURACY

BEST = ("linear", "weight_norm", "cosine+single")


def section(tables: Tables) -> Section | None:
    """Show both side by side, for each kind of drift."""
    where = cited("Fig. 5c", tables["accuracy"])
    if not where:  # what each head reaches and keeps tells more of other data
        return None
    similar = paper_layers(by_gradient=False)
    parts = starts_of(tables["by_kind"])
    known = parts[0].rows.drop_nulls("mean") if parts else tables["by_kind"]
    paper = known.filter(pl.col("name").is_in([*BEST, *similar]))
    names = set(paper["name"])
    if not (names & set(similar) and names & set(BEST)):
        paper = paper.clear()
    beyond = known.filter(~pl.col("name").is_in(PAPER_HEADS))
    panels, text = [], []
    if paper.height:
        caption = "Averaged over streams; lines are deviations over orders. "
        panels.append(Panel(caption + over(paper) + where, _figures("similarity", paper)))
        text.append(
            f"{', '.join(similar[:-1])} and {similar[-1]} need no gradient and see each sample "
            "once. The others are the paper's best gradient layers, weight_norm and "
            "cosine+single, and linear."
        )
    if beyond.height:
        # Only what is averaged over the same streams can stand beside them.
        same = known.filter(pl.col("name").is_in([*BEST, *similar])).join(
            beyond, on=["kind", "over"], how="semi"
        )
        caption = "Heads that the paper does not know, beside its own. "
        figures = _figures("beyond-the-paper", pl.concat([same, beyond]))
        panels.append(Panel(caption + over(beyond), figures))
    if not panels:
        return None
    title = "Gradient layers and similarity-based ones"
    return Section("similarity", title, text, panels, [_table(pl.concat([paper, beyond]))])


TOPIC = Topic(section, needs=[BY_KIND, ACCURACY])


def _figures(name: str, table: pl.DataFrame) -> list[Figure]:
    figures = []
    for (kind,), part in table.group_by("kind", maintain_order=True):
        heads = heads_of(part)
        plot = bars(part, "name", heads, height=30 * len(heads) + 20)
        figures.append(Figure((name, str(kind)), str(kind), *plot))
    return figures


def _table(table: pl.DataFrame) -> Table:
    kinds = table["kind"].unique(maintain_order=True).to_list()
    rows = []
    for name in heads_of(table):
        by = {row["kind"]: row for row in table.filter(name=name).iter_rows(named=True)}
        cells = (spread(by[k]["mean"], by[k]["deviation"]) if k in by else words("") for k in kinds)
        rows.append([words(name), *cells])
    caption = "Final accuracy in %, averaged over the streams of each kind of drift."
    return Table(("similarity",), caption, ("head", *kinds), rows)
