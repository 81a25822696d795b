"""Each number of the page's tables stands in its own row and column: swapped ones are found."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lastlayer.paper.published_numbers import SELECTED
from lastlayer.report.data_names import title_of
from lastlayer.report.section import file_names
from lastlayer.report.topics.lost_samples import OF_FATES, OF_REPAIRS
from read_page import Page


@pytest.fixture(name="page", scope="module")
def _page(folder: Path) -> Page:
    return Page(folder / "report.html")


def file_name(*about: str) -> str:
    return file_names([about])[0]


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    table = pl.read_csv(folder / "tables" / f"{name}.csv", infer_schema_length=None)
    assert table.height > 1
    return table.rows(named=True)


def row_of(page: Page, table: str, **key: str) -> dict[str, str]:
    """Give the one row of a table of the page that has these words."""
    (row,) = (r for r in page.rows(table) if all(r[name] == text for name, text in key.items()))
    return row


def spread(row: dict[str, Any]) -> str:
    return f"{row['mean']:.2f} ± {row['deviation']:.2f}"


def stream_of(row: dict[str, Any]) -> str:
    return title_of(row["features"], row["scenario"])


def test_accuracy(page: Page, folder: Path) -> None:
    for row in rows_of(folder, "accuracy"):
        shown = row_of(page, file_name("accuracy", stream_of(row)), head=row["name"])
        assert shown["final accuracy, %"] == spread(row)
        assert shown["average accuracy while learning, %"] == f"{row['average']:.2f}"
        assert shown["forgetting, points"] == f"{row['forgetting']:.2f}"
        assert shown["learning rate"] == ("" if row["lr"] is None else f"{row['lr']:g}")


def test_averages_of_masks(page: Page, folder: Path) -> None:
    for row in rows_of(folder, "by_mask"):
        shown = row_of(page, "masks", drift=row["kind"], mask=row["mask"])
        assert shown["final accuracy, %"] == spread(row)
        assert (shown["runs"], shown["layers in it"]) == (str(row["runs"]), row["layers"])


def test_averages_of_heads(page: Page, folder: Path) -> None:
    rows = rows_of(folder, "by_kind")
    layers = [row for row in rows if row["head"] in SELECTED]
    for row in layers:
        shown = row_of(page, "layers-and-masks", drift=row["kind"], layer=row["head"])
        assert shown["no mask" if row["mask"] == "none" else row["mask"]] == spread(row)
    similar = [row for row in rows if row["head"] not in SELECTED]
    assert layers
    assert similar
    for row in similar:
        assert row_of(page, "similarity", head=row["name"])[row["kind"]] == spread(row)


def test_all_data_at_once(page: Page, folder: Path) -> None:
    whole = [r for r in rows_of(folder, "iid") if r["subset"] is None and r["mask"] == "none"]
    for row in whole:
        same = [
            shown
            for shown in page.rows("preliminary")
            if (shown["features"], shown["label"]) == (row["features"], row["label"])
            and row["lr"] in (None, float(shown["learning rate"]))
        ]
        assert same
        assert all(shown[row["head"]].startswith(spread(row)) for shown in same)


def test_subsets(page: Page, folder: Path) -> None:
    rows = rows_of(folder, "iid")
    tried = {(row["features"], row["label"]) for row in rows if row["subset"]}
    assert len(tried) == 2
    for row in rows:
        place = (row["features"], row["label"])
        if place in tried and row["lr"] == SELECTED.get(row["head"]):
            shown = row_of(page, file_name("subsets", ", ".join(place)), head=row["name"])
            text = shown["all" if row["subset"] is None else f"{row['subset']} samples"]
            mean, wide = row["published_mean"], "~" if row["verdict"] == "wide" else ""
            assert text == spread(row) + ("" if mean is None else f" ({mean:.2f}{wide})")


def test_repairs(page: Page, folder: Path) -> None:
    for row in rows_of(folder, "repairs"):
        tables = {**dict.fromkeys(OF_REPAIRS, "repairs"), **dict.fromkeys(OF_FATES, "fates")}
        if row["what"] in tables:
            table = file_name(tables[row["what"]], stream_of(row))
            begin = "repaired by " if row["what"] in OF_REPAIRS else ""
            column = f"{begin}{(OF_REPAIRS | OF_FATES)[row['what']]}"
            assert row_of(page, table, head=row["name"])[column] == f"{row['mean']:.2f}"
