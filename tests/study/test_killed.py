"""A study killed at any moment, or out of room, loses nothing and repeats nothing."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from killing import run
from lastlayer.results import load_study
from lastlayer.results.store import FILE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork"),
]


def conduct(root: Path, task: str) -> str:
    return run(Path(__file__).with_name("killed_study.py"), root, task)


def content(folder: Path) -> tuple[list[object], list[object]]:
    """Give all rows of a study by digest, whatever order they were written in."""
    with closing(sqlite3.connect(folder / FILE)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        runs = file.execute("SELECT * FROM run ORDER BY digest")
        place = [column[0] for column in runs.description].index("id")
        rows = [row[:place] + row[place + 1 :] for row in runs]
        arrays = file.execute(
            "SELECT digest, name, type, shape, content FROM array JOIN run ON run.id = run "
            "ORDER BY digest, name"
        ).fetchall()
    return rows, arrays


def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    conduct(tmp_path, "kill")
    expected = content(tmp_path / "undisturbed")
    assert len(expected[0]) == 2 * 19 * 4
    assert load_study(tmp_path / "undisturbed").done.height == len(expected[0])
    disturbed = sorted(tmp_path.glob("killed-*"))
    assert disturbed
    for folder in disturbed:
        assert content(folder) == expected


def test_out_of_room_it_says_so_and_goes_on_when_there_is_some(tmp_path: Path) -> None:
    said = conduct(tmp_path, "fill")
    assert "cannot write" in said
    assert "What was saved so far is kept" in said
    assert content(tmp_path / "full") == content(tmp_path / "undisturbed")
