"""docs/reproduction.md and results/paper/comparison.md show the numbers of the results alone."""

import re

import polars as pl
from benchmarks.reproduction_tables import COMPARISON, PAGE, TABLE, comparison, page

from lastlayer.paper.reproduction import count_agreement


def test_its_tables_are_those_of_the_committed_results() -> None:
    assert page() == PAGE.read_text(encoding="utf-8")
    assert comparison() == COMPARISON.read_text(encoding="utf-8")


def test_its_share_is_counted() -> None:
    table = pl.read_csv(TABLE, infer_schema_length=None)
    clean = table.filter(pl.col("published_std") < 5)
    assert (table.height, clean.height) == (212, 165)
    text = PAGE.read_text(encoding="utf-8")
    counts = count_agreement(table)
    agree, of = counts["block"]
    assert f"**{agree} of {of} comparable numbers agree**" in text
    printed = clean.filter(verdict="agrees").height
    assert f"({printed} of {clean.height}, were those printed twice counted twice)" in text
    may, september = (counts[code][0] for code in ("may", "september"))
    assert f"With May's code alone {may} agree, with September's\nalone {september}." in text
    assert f"{table['block'].n_unique()} choices" in text.replace("four choices", "4 choices")
    numbers = COMPARISON.read_text(encoding="utf-8")
    assert len(re.findall(r" \*\*≠\*\* \|", numbers)) == 165 - printed
