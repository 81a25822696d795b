"""Every published number that this study can be put beside, and ours."""

from lastlayer.report.looks import name_of
from lastlayer.report.section import Row, Section, Tables
from lastlayer.report.shown import Cell, Table, number, short, spread, words

VERDICTS = ("agrees", "differs", "wide")


def published(tables: Tables) -> Section | None:
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
    shown = Table("published", caption, header, rows)
    return Section("published", "Published numbers and ours", [text], (), [shown])


def _row(row: Row) -> list[Cell]:
    some = Cell("all", 10**9) if row["subset"] is None else Cell(str(row["subset"]), row["subset"])
    return [
        words(row["experiment"]),
        words(row["features"]),
        words(row["label"]),
        words(name_of(row["head"], row["mask"])),
        short(row["lr"]),
        some,
        spread(row["mean"], row["deviation"]),
        spread(row["published_mean"], row["published_std"]),
        number(row["difference"], sign=True),
        words(row["verdict"]),
    ]
