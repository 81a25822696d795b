"""The paper's Fig. 5: masks averaged over layers (a), layer by layer (b), and similarity (c).

Heads that the paper does not know have a figure of their own beside the last one.
"""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from lastlayer.catalogue.head_cards import PAPER_HEADS, STARTS
from lastlayer.report.charts import bars
from lastlayer.report.data_names import cited
from lastlayer.report.looks import ALL_LAYERS, heads_of, paper_layers
from lastlayer.report.looks import masks as all_masks
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic
from lastlayer.report.select import HEAD, STREAM, every_option, in_order, own_options
from lastlayer.report.sheet import MEAN, Sheet, texts
from lastlayer.report.table import Table, across, mean_of, number, words
from lastlayer.report.topics.accuracy import ACCURACY
from lastlayer.results import Study
from lastlayer.results.tables import deviation

BEST = ("linear", "weight_norm", "cosine+single")  # of the gradient layers, beside the others


def by_mask(study: Study) -> pl.DataFrame:
    """Average each mask over the paper's layers and the streams of a kind (Fig. 5a), by start.

    Only layers that were run with every mask of the stream, from the same start, are in it.
    """
    runs = every_option(study).filter(pl.col("head").is_in(paper_layers(by_gradient=True)))
    masks = pl.col("mask").n_unique()
    parts = []
    for start, part in by_start(runs):
        mine = part.filter(
            masks.over(*STREAM, "head") == masks.over("kind"), masks.over("kind") > 1
        )
        parts.append(_average(mine, ("kind", "mask")).with_columns(start))
    return in_order(pl.concat(parts), "kind", "start", "mask")


def by_start(runs: pl.DataFrame) -> Iterator[tuple[pl.Expr, pl.DataFrame]]:
    """Yield the runs of each start, with heads that have only one; weight_norm with its own gain.

    Masks are compared within one start and never across two (docs/decisions/9).
    """
    own = own_options(runs, (*STREAM, "preset", *HEAD, "lr", "start"))
    starts: list[str | None] = [start for start in STARTS if start in set(runs["start"])]
    for start in starts or [None]:
        mine = [] if start is None else [pl.col("start") == start]
        part = own.filter(pl.any_horizontal(pl.col("start").is_null(), *mine))
        yield pl.lit(start, dtype=pl.String).alias("start"), part


def by_kind(study: Study) -> pl.DataFrame:
    """Average each head over the streams of a kind, by start; those that have all are in it.

    The paper's heads are averaged among themselves, whatever else there is; all others over the
    streams that have them all.
    """
    of_paper = pl.col("name").is_in(PAPER_HEADS)
    parts = []
    for start, runs in by_start(every_option(study)):
        paper = _over_kinds(runs.filter(of_paper))
        others = _over_kinds(runs).filter(~of_paper)
        parts.append(pl.concat([paper, others]).with_columns(start))
    return in_order(pl.concat(parts), "kind", "start", *HEAD)


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


BY_MASK = Sheet("by_mask", texts("kind", "start", "mask") | MEAN | texts("layers", "over"), by_mask)
BY_KIND = Sheet(
    "by_kind", texts("kind", "start", *HEAD, "name") | MEAN | texts("layers", "over"), by_kind
)


def masks_section(tables: Tables) -> Section | None:
    """Show masks averaged over all layers for each kind of drift, and layers × masks."""
    averages = tables["by_mask"]
    shown = tables["accuracy"]
    kinds = averages["kind"].unique(maintain_order=True).to_list()
    paper = pl.col("head").is_in(paper_layers(by_gradient=True))
    heads = tables["by_kind"].filter(paper, pl.col("kind").is_in(kinds))
    layers = averages["layers"].str.split(", ").explode().unique().sort().to_list()
    as_one = (pl.lit(ALL_LAYERS).alias("head"), pl.col("mask").alias("name"))
    panels = [
        Panel(
            f"Each mask averaged over streams and over {' and '.join(layers)}; lines are "
            f"deviations over orders of the tasks. {over(averages)}{cited('Fig. 5a', shown)}",
            [
                Figure(
                    ("masks", *part.about),
                    f"Masks, averaged over layers{part.said}",
                    *_by_mask(part.rows.with_columns(as_one), "kind", height=75),
                )
                for part in starts_of(averages)
            ],
        ),
        Panel(
            f"Layers × masks, averaged over streams. {over(heads)}{cited('Fig. 5b', shown)}",
            [
                Figure(
                    ("layers-and-masks", str(kind), *mine.about),
                    f"{kind}{mine.said}",
                    *_by_mask(part, "head", height=52),
                )
                for mine in starts_of(heads)
                for (kind,), part in mine.rows.group_by("kind", maintain_order=True)
            ],
        ),
    ]
    text = (
        "Masking is a change of the loss in training: single lets only the sample's own class "
        "learn, group all classes of the mini-batch. A full bar with a solid outline is unmasked, "
        "a dashed one is group, a dotted one single. All heads of a comparison start alike; those "
        "with one start stand beside both."
    )
    return Section(
        "masks", "What masking does", [text], panels, [_table(averages), _heads_table(heads)]
    )


MASKS = Topic(masks_section, needs=[BY_MASK, BY_KIND], also=[ACCURACY])


class FromStart(NamedTuple):
    """The rows of a table that start alike."""

    rows: pl.DataFrame
    about: tuple[str, ...]  # what tells its figures from those of the first start
    said: str  # in titles, where there are several


def starts_of(table: pl.DataFrame) -> list[FromStart]:
    """Take a table apart by start."""
    parts = [part for _, part in table.group_by("start", maintain_order=True)]
    parts.sort(key=lambda part: STARTS.index(s) if (s := part["start"][0]) in STARTS else 0)
    names = [str(part["start"][0]) for part in parts]
    several = len(parts) > 1
    return [
        FromStart(part, (name,) if place else (), f", {name} start" if several else "")
        for place, (name, part) in enumerate(zip(names, parts, strict=True))
    ]


def over(table: pl.DataFrame) -> str:
    """Say which data sets are in the averages of each kind."""
    parts = table.group_by("kind", maintain_order=True).agg(pl.col("over").first()).rows()
    return " ".join(f"In {kind}: {over}." for kind, over in parts)


def _by_mask(table: pl.DataFrame, y: str, height: int) -> Plot:
    """Draw a bar for each mask beside each value of ``y``, which all take so much height."""
    values = table[y].unique(maintain_order=True).to_list()
    return bars(table, y, values, height=height * len(values), offset="mask")


def _table(table: pl.DataFrame) -> Table:
    rows = [
        [words(row["kind"]), words(row["start"]), words(row["mask"]),
         mean_of(row),
         number(row["runs"], digits=0), words(row["layers"]), words(row["over"])]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    header = ("drift", "start", "mask", "final accuracy, %", "runs", "layers in it",
              "streams in it")  # fmt: skip
    return Table(("masks",), "Masks averaged over layers and streams.", header, rows)


def _heads_table(table: pl.DataFrame) -> Table:
    rows = []
    for (kind, start, head), part in table.group_by("kind", "start", "head", maintain_order=True):
        begin = words(None if start is None else str(start))
        cells = across(part, "mask", all_masks())
        rows.append([words(str(kind)), begin, words(str(head)), *cells])
    header = ("drift", "start", "layer", "no mask", *all_masks()[1:])
    caption = "Layers × masks: final accuracy in %, averaged over streams."
    return Table(("layers-and-masks",), caption, header, rows)


def similarity_section(tables: Tables) -> Section | None:
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
        panels.append(Panel(caption + over(paper) + where, _by_head("similarity", paper)))
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
        figures = _by_head("beyond-the-paper", pl.concat([same, beyond]))
        panels.append(Panel(caption + over(beyond), figures))
    if not panels:
        return None
    title = "Gradient layers and similarity-based ones"
    return Section(
        "similarity", title, text, panels, [_similarity_table(pl.concat([paper, beyond]))]
    )


SIMILARITY = Topic(similarity_section, needs=[BY_KIND, ACCURACY])


def _by_head(name: str, table: pl.DataFrame) -> list[Figure]:
    figures = []
    for (kind,), part in table.group_by("kind", maintain_order=True):
        heads = heads_of(part)
        plot = bars(part, "name", heads, height=30 * len(heads) + 20)
        figures.append(Figure((name, str(kind)), str(kind), *plot))
    return figures


def _similarity_table(table: pl.DataFrame) -> Table:
    kinds = table["kind"].unique(maintain_order=True).to_list()
    rows = [
        [words(name), *across(table.filter(name=name), "kind", kinds)] for name in heads_of(table)
    ]
    caption = "Final accuracy in %, averaged over the streams of each kind of drift."
    return Table(("similarity",), caption, ("head", *kinds), rows)
