"""Learning rates and backbones on all data at once (tables 2 and 3), and what they would select."""

from functools import partial

import polars as pl

from lastlayer.catalogue.head_cards import CODES, HEADS
from lastlayer.paper.published_numbers import PUBLISHED, SELECTED, beside, block_of, of_code
from lastlayer.report.data_names import cited, data_name
from lastlayer.report.looks import place_of
from lastlayer.report.section import Section, Tables, Topic
from lastlayer.report.select import (
    HEAD,
    OPTIONS,
    in_order,
    one_preset,
    own_options,
    own_rate,
    percent,
    with_names,
)
from lastlayer.report.sheet import MEAN, Sheet, integers, numbers, texts, truths
from lastlayer.report.table import Cell, Row, Table, across, number, short, spread, words
from lastlayer.results import Study

SET = ("features", "label")
HELD_OUT = " held out)"  # how the name of features ends whose test set is a part of training
CELL = texts(*SET, "preset", *HEAD, "name") | numbers("lr") | integers("subset")


def iid(study: Study) -> pl.DataFrame:
    """Return each head at each learning rate and subset, over seeds; one preset for a data set.

    Of several starts, gains and batch sizes, those of the code that the block stands for.
    """
    runs = of_blocks(iid_runs(study))
    cell = list(CELL)
    table = runs.group_by(cell).agg(*percent("final"), pl.col("diverged").count().cast(pl.Int64))
    paper = table.filter(pl.col("mean").is_not_null(), preset="paper")
    known = beside(paper.with_columns(pl.col("deviation").fill_null(0).alias("std"))).drop("std")
    rest = table.filter(pl.col("mean").is_null() | (pl.col("preset") != "paper"))
    empty = (pl.lit(None, dtype=kind).alias(name) for name, kind in PUBLISHED.items())
    table = pl.concat([known, rest.with_columns(*empty)]).sort("lr", descending=True)
    return in_order(table, *SET, *HEAD, "subset")


def iid_runs(study: Study) -> pl.DataFrame:
    """Return the finished runs on all data at once, or a subset; one preset for a data set."""
    runs = one_preset(with_names(study.done.filter(n_tasks=1)), SET)
    # "iid" and "iid/class" may be the same; a mean is the same to the last digit in one order only
    return runs.unique([*CELL, *OPTIONS, "seed"], keep="first", maintain_order=True)


def of_blocks(runs: pl.DataFrame) -> pl.DataFrame:
    """Keep the runs of the code that each block stands for; where there are none, of one."""
    block = (*SET, "mask", "subset")
    kinds = runs.select(block).unique().rows()
    codes = pl.DataFrame(
        [(*kind, block_of(*kind).code) for kind in kinds],
        {**{name: runs.schema[name] for name in block}, "code": pl.String},
        orient="row",
    )
    known = runs.join(codes, on=block, nulls_equal=True, maintain_order="left")
    fits = pl.any_horizontal((pl.col("code") == code) & of_code(code) for code in CODES)
    within = list(CELL)
    some = known.with_columns(fits.alias("fits"))
    chosen = some.filter(pl.col("fits") | ~pl.col("fits").any().over(within))
    return own_options(chosen, tuple(within)).drop("code", "fits")


def learning_rates(study: Study) -> pl.DataFrame:
    """Average each layer at each learning rate over the data sets that have all its rates."""
    layers = [name for name, card in HEADS.items() if card.by_gradient]
    table = _all_data(iid(study)).filter(pl.col("head").is_in(layers), pl.col("mean").is_not_null())
    table = table.with_columns(_held_out(), *named_sets())
    lrs = pl.col("lr").n_unique()
    mine = table.filter(lrs.over("held_out", "head", "set") == lrs.over("held_out", "head"))
    averages = mine.group_by("held_out", "head", "lr").agg(
        pl.col("mean").mean(),
        pl.col("runs").sum(),
        pl.col("called").sort().str.join("; ").alias("over"),
    )
    averages = averages.filter(pl.len().over("held_out", "head") > 1).with_columns(
        (pl.col("mean") == pl.col("mean").max().over("held_out", "head")).alias("best"),
        pl.col("head")
        .replace_strict(SELECTED, default=None, return_dtype=pl.Float64)
        .alias("published_lr"),
    )
    return in_order(averages, "held_out", "head", "lr")


def backbones(study: Study) -> pl.DataFrame:
    """Average each backbone over the heads that all backbones of its data set were tried with.

    Features of no named data set cannot be compared.
    """
    whole = _all_data(iid(study)).rename({"mean": "final"})
    table = own_rate(whole, (*SET, "preset")).rename({"final": "mean"})
    sets = {name: known.origin.get("dataset") or None for name, known in study.data.items()}
    dataset = pl.col("features").replace_strict(sets, default=None, return_dtype=pl.String)
    table = table.with_columns(_held_out(), dataset.alias("data")).drop_nulls("data")
    within = ("held_out", "data", "label")
    tried = pl.col("features").n_unique()
    table = table.filter(tried.over(*within, *HEAD) == tried.over(within), tried.over(within) > 1)
    averages = table.group_by(*within, "features").agg(
        pl.col("mean").mean(),
        pl.col("runs").sum(),
        pl.col("name").sort().str.join(", ").alias("over"),
    )
    best = pl.col("mean") == pl.col("mean").max().over(within)
    return in_order(averages.with_columns(best.alias("best")), *within, "features")


IID = Sheet("iid", CELL | MEAN | integers("diverged") | PUBLISHED, iid)
LEARNING_RATES = Sheet(
    "learning_rates",
    truths("held_out") | texts("head") | numbers("lr", "mean") | integers("runs") | texts("over")
    | truths("best") | numbers("published_lr"),
    learning_rates,
)  # fmt: skip
BACKBONES = Sheet(
    "backbones",
    truths("held_out") | texts("data", "label", "features") | numbers("mean") | integers("runs")
    | texts("over") | truths("best"),
    backbones,
)  # fmt: skip


def named_sets() -> tuple[pl.Expr, pl.Expr]:
    """Return each data set with its label: as it is told apart, and as it is called."""
    called = pl.col("features").map_elements(data_name, pl.String)
    apart = pl.concat_str(SET, separator=", ").alias("set")
    return apart, pl.concat_str(called, "label", separator=", ").alias("called")


def _all_data(table: pl.DataFrame) -> pl.DataFrame:
    """Keep what tables 2 and 3 hold: all data, no mask, every learning rate."""
    return table.filter(pl.col("subset").is_null(), mask="none")


def _held_out() -> pl.Expr:
    return pl.col("features").str.ends_with(HELD_OUT).alias("held_out")


def section(tables: Tables) -> Section | None:
    """Show each head at each learning rate on each data set, and the selection."""
    whole = tables["iid"].filter(pl.col("subset").is_null()).drop_nulls("mean")
    if whole.is_empty():
        return None
    parts = (
        (_all_data(whole), _table),
        (whole.filter(pl.col("mask") != "none"), _masked),
        (tables["learning_rates"], partial(_rates, papers=bool(cited("tables", whole)))),
        (tables["backbones"], _backbones),
    )
    shown = [show(part) for part, show in parts if part.height]
    return Section("preliminary", "All data at once", _words(tables), (), shown)


TOPIC = Topic(section, needs=[IID], also=[LEARNING_RATES, BACKBONES])


def _words(tables: Tables) -> list[str]:
    text = ["Without drift: how good a head can be on these features."]
    if tables["iid"]["published_mean"].count():
        text[0] += " Published numbers stand in brackets; a ~ marks those that cannot be judged."
    if tables["learning_rates"].height or tables["backbones"].height:
        held = tables["iid"]["features"].str.ends_with(HELD_OUT)
        text.append(
            "The selection is made on training data that were held out, not on the test set."
            if held.all() and len(held)
            else "The selection is made on test accuracy: it is a little too good."
        )
        if held.any() and not held.all():
            text.append(
                "Where features are named (… held out), it is made on held-out training data."
            )
    return text


def in_brackets(table: pl.DataFrame) -> str:
    """Say in a caption what the brackets hold, where there are some."""
    return " (published in brackets)" if table["published_mean"].count() else ""


def with_published(row: Row) -> Cell:
    """Return our number with the published one in brackets."""
    mean = row["published_mean"]
    note = "" if mean is None else f" ({mean:.2f}{'~' if row['verdict'] == 'wide' else ''})"
    return spread(row["mean"], row["deviation"], note)


def _table(table: pl.DataFrame) -> Table:
    heads = sorted(table["head"].unique(), key=place_of)
    rows = []
    for (features, label), part in table.group_by("features", "label", maintain_order=True):
        where = [words(data_name(str(features))), words(str(label))]
        rates = part["lr"].drop_nulls().unique().sort(descending=True).to_list()
        rows += [[*where, short(lr), *_numbers(part, lr, heads)] for lr in rates or [None]]
    caption = (
        f"Accuracy on all data at once in %, mean ± deviation over seeds{in_brackets(table)}; "
        f"heads without gradient have no learning rate.{cited('tables 2, 3', table)}"
    )
    return Table(("preliminary",), caption, ("features", "label", "learning rate", *heads), rows)


def _masked(table: pl.DataFrame) -> Table:
    rows = [
        [words(data_name(row["features"])), words(row["label"]), words(row["name"]),
         short(row["lr"]), with_published(row)]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    header = ("features", "label", "head", "learning rate", "accuracy, %")
    caption = f"Masked heads on all data at once, mean ± deviation over seeds{in_brackets(table)}."
    return Table(("masked",), caption, header, rows)


def _numbers(part: pl.DataFrame, lr: float | None, heads: list[str]) -> list[Cell]:
    mine = part.filter(pl.col("lr").is_null() | pl.col("lr").is_in([lr] if lr else []))
    return across(mine, "head", heads, with_published)


def _rates(table: pl.DataFrame, papers: bool) -> Table:
    rates = table["lr"].unique().sort(descending=True).to_list()
    rows = []
    for (head, _), part in table.group_by("head", "held_out", maintain_order=True):
        means = dict(part.select("lr", "mean").rows())
        choices = [part.filter("best")["lr"][0], *(part["published_lr"][:1] if papers else ())]
        cells = (*(number(means.get(rate)) for rate in rates), *map(short, choices))
        rows.append([words(str(head)), *cells, words(part["over"][0])])
    chosen = ("best", "the paper's choice") if papers else ("best",)
    header = ("layer", *(f"at {lr:g}" for lr in rates), *chosen, "data sets in it")
    caption = "Learning rates: mean accuracy in %, averaged over data sets."
    return Table(("learning-rates",), caption, header, rows)


def _backbones(table: pl.DataFrame) -> Table:
    rows = [
        [words(row["data"]), words(row["label"]),
         words(data_name(row["features"]).removeprefix(f"{row['data']}/")), number(row["mean"]),
         words("best" if row["best"] else ""), words(row["over"])]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    header = ("data", "label", "backbone", "mean accuracy, %", "ours", "heads in it")
    caption = (
        "Backbones, averaged over heads. A backbone trained on the very data has seen all of them "
        "beforehand: it is a reference only."
    )
    return Table(("backbones",), caption, header, rows)
