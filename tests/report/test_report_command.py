"""`lastlayer report`: it says where the page is, or in one line what is wrong."""

import sys
from pathlib import Path

import pytest

from lastlayer.cli import main
from made_up import Stream, write_study


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["lastlayer", "report", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_it_prints_where_the_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_study(tmp_path / "study", [Stream(heads=("mean",))])
    assert call(monkeypatch, str(folder)) == 0
    assert Path(capsys.readouterr().out.strip()) == folder / "report.html"


def test_a_folder_without_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, str(tmp_path / "nowhere")) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: no results in")
    assert "lastlayer run" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "nowhere").exists()
