"""Every published number that this study can be put beside, and ours."""

from typing import Any

import polars as pl

from lastlayer.catalogue.head_cards import CODES, full_name
from lastlayer.paper.preliminary import iid_runs
from lastlayer.paper.published_numbers import KEY, PUBLISHED, agree, block_of, of_code, published
from lastlayer.report.section import Section, Tables, Topic
from lastlayer.report.select import percent
from lastlayer.report.sheet import MEAN, Sheet, integers, numbers, texts, truths
from lastlayer.report.table import Cell, Row, Table, mean_of, number, short, spread, words
from lastlayer.results import Study

VERDICTS = ("agrees", "differs", "wide")
THEIRS = dict(list(PUBLISHED.items())[:2])
OF_CODE = {  # each code alone
    name: kind
    for code in CODES
    for name, kind in (
        numbers(f"{code}_mean", f"{code}_deviation") | texts(f"{code}_verdict")
    ).items()
}
COLUMNS = (
    texts("experiment", *KEY[:4]) | numbers("lr") | integers("subset") | texts("block", "code")
    | MEAN | THEIRS | numbers("difference") | texts("verdict") | truths("again") | OF_CODE
)  # fmt: skip


def reproduction(study: Study) -> pl.DataFrame:
    """Return each published number with ours, for the data sets that ran with preset "paper".

    Ours is that of the code which the number's block stands for, at the learning rate of the text;
    beside it, that of each code. ``again`` marks a number that the paper prints for the second
    time. ``verdict`` is null where ours is missing.
    """
    runs = iid_runs(study).filter(pl.col("final").is_not_null(), preset="paper")
    theirs = published().rename({"mean": "published_mean", "std": "published_std"})
    theirs = theirs.join(
        runs.select("features", "label").unique(), on=["features", "label"], how="semi"
    )
    again = ~pl.struct(*KEY, *THEIRS).is_first_distinct()
    theirs = theirs.with_columns(again.alias("again"))
    ours = {code: _means(runs.filter(of_code(code))) for code in CODES}
    rows = [_beside(row, ours) for row in theirs.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=COLUMNS)


SHEET = Sheet("published", COLUMNS, reproduction)

Means = dict[tuple[Any, ...], Row]


def _means(runs: pl.DataFrame) -> Means:
    table = runs.sort("seed").group_by(KEY, maintain_order=True).agg(*percent("final"))
    return {tuple(row[name] for name in KEY): row for row in table.iter_rows(named=True)}


def _beside(row: Row, ours: dict[str, Means]) -> Row:
    """Put ours beside one published number."""
    key = tuple(row[name] for name in KEY)
    block = block_of(row["features"], row["label"], row["mask"], row["subset"])
    made = {**row, "block": block.name, "code": block.code, "verdict": None}
    for code, means in ours.items():
        found = means.get(key)
        if found is None:
            continue
        verdict = agree(
            found["mean"], found["deviation"] or 0.0, row["published_mean"], row["published_std"]
        )
        made |= {f"{code}_{name}": found[name] for name in ("mean", "deviation")}
        made[f"{code}_verdict"] = verdict
        if code == block.code:
            made |= {name: found[name] for name in MEAN}
            made |= {"difference": found["mean"] - row["published_mean"], "verdict": verdict}
    return made


def count_agreement(table: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """Count in the sheet "published", each number once, how many agree, and of how many.

    Those of "block", and of each of ``CODES`` alone.
    """
    once = table.filter(~pl.col("again"))
    columns = {"block": "verdict", **{code: f"{code}_verdict" for code in CODES}}
    counts = {}
    for name, column in columns.items():
        agrees, differs, _ = (once.filter(pl.col(column) == v).height for v in VERDICTS)
        counts[name] = (agrees, agrees + differs)
    return counts


def section(tables: Tables) -> Section | None:
    """List the published numbers with ours, where both are there."""
    table = tables["published"].drop_nulls("mean")
    if table.is_empty():
        return None
    rows = [_row(row) for row in table.iter_rows(named=True)]
    header = ("experiment", "features", "label", "head", "learning rate", "samples", "code",
              "ours, %", "published, %", "ours − published", "verdict",
              *(f"{code} alone" for code in CODES))  # fmt: skip
    caption = "Published numbers and ours: all data at once, and subsets (tables 1 to 4)."
    shown = Table(("published",), caption, header, rows)
    return Section("published", "Published numbers and ours", _words(table), (), [shown])


TOPIC = Topic(section, needs=[SHEET])


def _words(table: pl.DataFrame) -> list[str]:
    counts = count_agreement(table)
    wide = table.filter(~pl.col("again"), verdict="wide").height
    agree_, of = counts["block"]
    alone = " and ".join(f"{counts[code][0]} of {counts[code][1]} for {code}'s" for code in CODES)
    choices = table["block"].n_unique()
    twice = table.filter("again").height
    text = [
        f"{agree_} of {of} published numbers agree with ours: they differ by less than "
        f"max(0.5, 3·√((s² + s²)/8)) points. {wide} more are wide, they cannot be judged: their "
        "deviation is 5 or more."
    ]
    if twice:
        text.append(f"{twice} numbers that the paper prints twice are counted once.")
    if choices > 1:
        text.append(
            f"Two states of the authors' code made them, {choices} choices of one for a whole "
            f"block; with one code alone it would be {alone} code. Git shows which code existed; "
            "which made a number is inferred (docs/decisions/9)."
        )
    return text


def _row(row: Row) -> list[Cell]:
    some = Cell("all", 10**9) if row["subset"] is None else Cell(str(row["subset"]), row["subset"])
    return [
        words(row["experiment"]), words(row["features"]), words(row["label"]),
        words(full_name(row["head"], row["mask"])), short(row["lr"]), some, words(row["code"]),
        mean_of(row), spread(row["published_mean"], row["published_std"]),
        number(row["difference"], sign=True), words(row["verdict"]),
        *(spread(row[f"{code}_mean"], row[f"{code}_deviation"]) for code in CODES),
    ]  # fmt: skip
