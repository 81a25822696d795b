"""docs/reproduction.md shows the numbers of the committed results, and no others."""

import re

import polars as pl
from benchmarks.reproduction_tables import PAGE, TABLE, page


def test_its_tables_are_those_of_the_committed_results() -> None:
    assert page() == PAGE.read_text(encoding="utf-8")


def test_its_share_is_counted() -> None:
    table = pl.read_csv(TABLE, infer_schema_length=None)
    clean = table.filter(pl.col("published_std") < 5)
    assert (table.height, clean.height) == (212, 165)
    agree = clean.filter(verdict="agrees").height
    assert f"**{agree} of {clean.height}" in PAGE.read_text(encoding="utf-8")
    assert len(re.findall(r" \*\*≠\*\* \|", PAGE.read_text(encoding="utf-8"))) == 165 - agree
