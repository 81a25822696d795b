"""Learning rates and backbones on all data at once (tables 2 and 3), and what they would select."""

import polars as pl

from lastlayer.report.looks import place_of
from lastlayer.report.section import Section, Tables
from lastlayer.report.sections.subsets import beside
from lastlayer.report.shown import Cell, Table, number, short, words
from lastlayer.report.tables.selection import HELD_OUT
from lastlayer.report.tables.selection import preliminary as all_data


def preliminary(tables: Tables) -> Section | None:
    """Show each head at each learning rate on each data set, and the selection."""
    whole = tables["iid"].filter(pl.col("subset").is_null()).drop_nulls("mean")
    table, masked = all_data(whole), whole.filter(pl.col("mask") != "none")
    if whole.is_empty():
        return None
    shown = [_table(table)] if table.height else []
    if masked.height:
        shown.append(_masked(masked))
    if tables["learning_rates"].height:
        shown.append(_rates(tables["learning_rates"]))
    if tables["backbones"].height:
        shown.append(_backbones(tables["backbones"]))
    return Section("preliminary", "All data at once", _words(tables), (), shown)


def _words(tables: Tables) -> list[str]:
    text = [
        "Without drift: how good a head can be on these features. Published numbers stand in "
        "brackets; a ~ marks those that cannot be judged."
    ]
    if tables["learning_rates"].height or tables["backbones"].height:
        held = tables["iid"]["features"].str.ends_with(HELD_OUT)
        text.append(
            "The selection is made on training data that were held out, not on the test set."
            if held.all() and len(held)
            else "The selection is made on test accuracy, as in the paper: it is a little too good."
        )
        if held.any() and not held.all():
            text.append(
                "Where features are named (… held out), it is made on held-out training data."
            )
    return text


def _table(table: pl.DataFrame) -> Table:
    heads = sorted(table["head"].unique(), key=place_of)
    rows = []
    for (features, label), part in table.group_by("features", "label", maintain_order=True):
        where = [words(str(features)), words(str(label))]
        rates = part["lr"].drop_nulls().unique().sort(descending=True).to_list()
        rows += [[*where, short(lr), *_numbers(part, lr, heads)] for lr in rates or [None]]
    caption = (
        "Accuracy on all data at once in %, mean ± deviation over seeds (published in brackets); "
        "heads without gradient have no learning rate. (tables 2, 3)"
    )
    return Table("preliminary", caption, ("features", "label", "learning rate", *heads), rows)


def _masked(table: pl.DataFrame) -> Table:
    rows = [
        [words(row["features"]), words(row["label"]), words(row["name"]), short(row["lr"]),
         beside(row)]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    header = ("features", "label", "head", "learning rate", "accuracy, %")
    caption = (
        "Masked heads on all data at once, mean ± deviation over seeds (published in brackets)."
    )
    return Table("masked", caption, header, rows)


def _numbers(part: pl.DataFrame, lr: float | None, heads: list[str]) -> list[Cell]:
    mine = part.filter(pl.col("lr").is_null() | pl.col("lr").is_in([lr] if lr else []))
    by = {row["head"]: row for row in mine.iter_rows(named=True)}
    return [beside(by[head]) if head in by else Cell("") for head in heads]


def _rates(table: pl.DataFrame) -> Table:
    rates = table["lr"].unique().sort(descending=True).to_list()
    rows = []
    for (head, _), part in table.group_by("head", "held_out", maintain_order=True):
        means = dict(part.select("lr", "mean").rows())
        best, paper = part.filter("best")["lr"][0], part["published_lr"][0]
        numbers = (number(means.get(rate)) for rate in rates)
        rows.append([words(str(head)), *numbers, short(best), short(paper), words(part["over"][0])])
    shown = (*(f"at {lr:g}" for lr in rates), "best", "the paper's choice")
    header = ("layer", *shown, "data sets in it")
    caption = "Learning rates: mean accuracy in %, averaged over data sets."
    return Table("learning-rates", caption, header, rows)


def _backbones(table: pl.DataFrame) -> Table:
    rows = [
        [words(row["data"]), words(row["label"]),
         words(row["features"].removeprefix(f"{row['data']}/")), number(row["mean"]),
         words("best" if row["best"] else ""), words(row["over"])]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    header = ("data", "label", "backbone", "mean accuracy, %", "ours", "heads in it")
    caption = (
        "Backbones, averaged over heads. A backbone trained on the very data has seen all of them "
        "beforehand: the paper uses it as a reference only."
    )
    return Table("backbones", caption, header, rows)
