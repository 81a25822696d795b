"""The one list of columns: the file, the tables and the docs are what it says."""

import sqlite3
from contextlib import closing
from pathlib import Path

from lastlayer.results import load_study
from lastlayer.results.columns import COLUMNS, KINDS, POLARS, Column
from lastlayer.results.results_file import create
from lastlayer.results.store import open_store

PAGE = Path(__file__).parents[2] / "results" / "paper" / "README.md"


def info(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("PRAGMA table_info(run)").fetchall()


def test_the_file_is_the_list(tmp_path: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as new:
        create(new, tmp_path)
        found = [(name, kind) for _, name, kind, *_ in info(new)]
    assert found == [(column.name, column.type) for column in COLUMNS]


def test_tables_have_the_columns_of_their_kind(tmp_path: Path) -> None:
    with open_store(tmp_path):
        pass
    study = load_study(tmp_path)
    for kind, table in zip(KINDS, (study.runs, study.replay), strict=True):
        mine = [column for column in COLUMNS if column.shown and kind in column.of]
        assert dict(table.schema) == {column.name: POLARS[column.type] for column in mine}


def line(column: Column) -> str:
    kinds = "both" if column.of == KINDS else f"{column.of[0]}s"
    meaning = f"{column.meaning} ({column.unit})" if column.unit else column.meaning
    return f"| `{column.name}` | {column.type.lower()} | {kinds} | {meaning} |"


def test_the_docs_show_the_list() -> None:
    """If this fails, put the lines that are missing into the page."""
    text = PAGE.read_text(encoding="utf-8")
    expected = "\n".join(line(column) for column in COLUMNS if column.shown)
    assert expected in text, expected
