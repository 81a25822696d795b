"""Every published number that this study can be put beside, and ours."""

from typing import Any

import polars as pl

from lastlayer.catalogue import full_name
from lastlayer.report.published import KEY, PUBLISHED, agree, published
from lastlayer.report.section import Row, Section, Tables, Topic
from lastlayer.report.sheet import MEAN, Sheet, integers, numbers, texts
from lastlayer.report.shown import Cell, Table, number, short, spread, words
from lastlayer.report.topics.preliminary import iid
from lastlayer.results import Study

VERDICTS = ("agrees", "differs", "wide")
THEIRS = dict(list(PUBLISHED.items())[:2])
COLUMNS = (
    texts("experiment", *KEY[:4]) | numbers("lr") | integers("subset") | MEAN | THEIRS
    | numbers("difference") | texts("verdict")
)  # fmt: skip


def reproduction(study: Study) -> pl.DataFrame:
    """Return each published number with ours, for the data sets that ran with preset "paper".

    A masked head was published at one learning rate, and it is not always the one that the text
    names: of several of ours the nearest is taken. ``verdict`` is null where ours is missing.
    """
    ours = iid(study).filter(pl.col("mean").is_not_null(), preset="paper")
    theirs = published().rename({"mean": "published_mean", "std": "published_std"})
    theirs = theirs.join(
        ours.select("features", "label").unique(), on=["features", "label"], how="semi"
    )
    rows = [_beside(row, ours) for row in theirs.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=COLUMNS)


SHEET = Sheet("published", COLUMNS, reproduction)


def _beside(row: Row, ours: pl.DataFrame) -> dict[str, Any]:
    """Put ours beside one published number."""
    same = [pl.col(name).eq_missing(row[name]) for name in KEY if name != "lr"]
    if row["mask"] == "none":
        same.append(pl.col("lr").eq_missing(row["lr"]))
    distance = (pl.col("mean") - row["published_mean"]).abs()
    found = ours.filter(*same).sort(distance).head(1).to_dicts()
    if not found:
        return {**row, "verdict": None}
    mean, deviation = found[0]["mean"], found[0]["deviation"]
    return {
        **row,
        **{name: found[0][name] for name in ("lr", "mean", "deviation", "runs")},
        "difference": mean - row["published_mean"],
        "verdict": agree(mean, deviation or 0.0, row["published_mean"], row["published_std"]),
    }


def section(tables: Tables) -> Section | None:
    """List the published numbers with ours, where both are there."""
    table = tables["published"].drop_nulls("mean")
    if table.is_empty():
        return None
    count = {verdict: table.filter(verdict=verdict).height for verdict in VERDICTS}
    text = (
        f"{count['agrees']} of {count['agrees'] + count['differs']} published numbers agree with "
        "ours: they differ by less than max(0.5, 3·√((s² + s²)/8)) points. "
        f"{count['wide']} more are wide, they cannot be judged: their deviation is 5 or more."
    )
    rows = [_row(row) for row in table.iter_rows(named=True)]
    header = ("experiment", "features", "label", "head", "learning rate", "samples", "ours, %",
              "published, %", "ours − published", "verdict")  # fmt: skip
    caption = "Published numbers and ours: all data at once, and subsets (tables 1 to 4)."
    shown = Table(("published",), caption, header, rows)
    return Section("published", "Published numbers and ours", [text], (), [shown])


TOPIC = Topic(section, needs=[SHEET])


def _row(row: Row) -> list[Cell]:
    some = Cell("all", 10**9) if row["subset"] is None else Cell(str(row["subset"]), row["subset"])
    return [
        words(row["experiment"]),
        words(row["features"]),
        words(row["label"]),
        words(full_name(row["head"], row["mask"])),
        short(row["lr"]),
        some,
        spread(row["mean"], row["deviation"]),
        spread(row["published_mean"], row["published_std"]),
        number(row["difference"], sign=True),
        words(row["verdict"]),
    ]
