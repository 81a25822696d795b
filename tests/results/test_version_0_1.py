"""A results file of version 0.1: it is read as it lies, goes on, and is reported and exported."""

import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
import version_0_1

from lastlayer.cli import main
from lastlayer.results import load_study
from lastlayer.results.schema import MIGRATIONS
from lastlayer.results.store import FILE
from lastlayer.study.plan import read_plan
from lastlayer.study.prepare import prepare

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]
UNVERIFIED = "11 runs were written by a version that kept no checksums"


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder with the plan and its data, and the file in ``out``."""
    version_0_1.write(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    shutil.copyfile(version_0_1.FILE, tmp_path / "out" / FILE)
    return tmp_path


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["lastlayer", *arguments])
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with pytest.raises(SystemExit) as exit_:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return int(exit_.value.code or 0)

    return run


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(query).fetchall()


def test_the_file_is_of_version_0_1() -> None:
    assert rows(version_0_1.FILE, "PRAGMA user_version") == [(3,)]
    assert rows(version_0_1.FILE, "SELECT value FROM study WHERE name = 'version'") == [("0.1.0",)]


def test_it_is_read_as_it_lies(folder: Path) -> None:
    before = (folder / "out" / FILE).read_bytes()
    study = load_study(folder / "out")
    assert (study.done.height, study.runs.height) == (8, 8)
    assert study.replay["state"].to_list() == ["done", "done", "done", "planned"]
    assert study.about["unverified"].startswith(UNVERIFIED)
    stored = dict(rows(folder / "out" / FILE, "SELECT digest, final FROM run"))
    for table in (study.runs, study.replay):
        assert all(stored[digest] == final for digest, final in table["digest", "final"].rows())
    assert len(study.arrays("right_by_class")) == 11
    assert len(study.arrays("norm", study.done.filter(head="linear"))) == 2
    assert study.arrays("arrived") == {}  # known since version 0.2
    assert (folder / "out" / FILE).read_bytes() == before


def test_its_runs_have_the_names_of_now(folder: Path) -> None:
    plan, _ = read_plan("plan.toml")
    ready = prepare(plan, Path("features"), Path("cifar"))
    stored = rows(folder / "out" / FILE, "SELECT digest FROM run")
    assert {digest for (digest,) in stored} == set(ready.runs)


@pytest.mark.usefixtures("undrawn")
def test_it_goes_on_and_is_sealed(folder: Path, call: Call, capsys: Captured) -> None:
    before = load_study("out")
    arrays = before.arrays("right_by_class")
    assert call("run", "plan.toml", "--root", "cifar", "--out", "out", "--device", "cpu") == 0
    said = capsys.readouterr()
    assert "12 runs, 11 of them already done" in said.err
    assert "12 of 12 runs in out" in said.out
    assert f"unverified: {UNVERIFIED}" in said.out
    after = load_study("out")
    assert after.runs.equals(before.runs)
    assert after.replay.filter(state="done").height == 4
    assert after.replay[:3].equals(before.replay[:3])
    assert after.about["unverified"] == before.about["unverified"]
    again = after.arrays("right_by_class")
    assert len(again) == 12
    assert all((again[digest] == array).all() for digest, array in arrays.items())
    assert len(after.arrays("arrived")) == 1
    assert rows(folder / "out" / FILE, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    kinds = "SELECT kind, count(*) FROM run GROUP BY kind ORDER BY kind"
    assert rows(folder / "out" / FILE, kinds) == [("head", 8), ("network", 4)]
    assert rows(folder / "out" / FILE, "SELECT 1 FROM run WHERE checksum IS NULL") == []


@pytest.mark.usefixtures("undrawn")
def test_it_is_reported_and_exported(folder: Path, call: Call, capsys: Captured) -> None:
    before = (folder / "out" / FILE).read_bytes()
    assert call("report", "out") == 0
    assert (folder / "out" / "report.html").stat().st_size > 10_000
    assert call("export", "out", "table.csv") == 0
    assert UNVERIFIED in capsys.readouterr().out
    table = pl.read_csv("table.csv")
    assert table["kind"].to_list() == 8 * ["head"] + 3 * ["network"]
    assert (folder / "out" / FILE).read_bytes() == before
