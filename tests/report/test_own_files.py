"""A report touches its own files and no others, whatever happens."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from lastlayer.errors import BusyError, WriteError
from lastlayer.report import own_files, write
from lastlayer.report.own_files import replace_report
from made_up import Stream, write_study


@pytest.fixture(name="study")
def _study(tmp_path: Path, undrawn: None) -> Path:
    return write_study(tmp_path / "study", [Stream(heads=("mean",), orders=(0,))])


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_files_of_the_user_are_left_alone(study: Path) -> None:
    mine = {
        "figures/thesis.pdf": b"my thesis",
        "figures/logo.svg": b"<svg/>",
        "tables/notes.md": b"notes",
        "tables/numbers.csv": b"a,b\n1,2\n",
        "tables/replay.csv": b"of another study",
        "tables/paper.tex": b"\\documentclass{article}",
    }
    for name, text in mine.items():
        (study / name).parent.mkdir(exist_ok=True)
        (study / name).write_bytes(text)
    write(study)
    write(study)
    assert mine.items() <= content(study).items()


def test_what_an_earlier_report_wrote_goes_unless_it_was_changed(tmp_path: Path) -> None:
    first = {"figures/a.svg": b"a", "figures/b.svg": b"b", "tables/c.md": b"c"}
    replace_report(tmp_path, first)
    (tmp_path / "figures" / "b.svg").write_bytes(b"drawn over")
    replace_report(tmp_path, {"tables/c.md": b"new"})
    kept = {name: text for name, text in content(tmp_path).items() if not name.startswith(".")}
    assert kept == {"figures/b.svg": b"drawn over", "tables/c.md": b"new"}
    replace_report(tmp_path, {})
    assert (tmp_path / "figures" / "b.svg").read_bytes() == b"drawn over"


@pytest.mark.parametrize("name", ["tables/accuracy.csv", "figures/summary.svg", "report.html"])
def test_a_file_in_the_way_is_named_and_not_lost(study: Path, name: str) -> None:
    (study / name).parent.mkdir(exist_ok=True)
    (study / name).write_bytes(b"mine")
    before = content(study)
    with pytest.raises(WriteError, match=r"was not written by lastlayer report: move it") as said:
        write(study)
    assert str(study / name) in str(said.value)
    assert before.items() <= content(study).items()
    assert content(study).keys() - before.keys() <= {own_files.LOCK}
    (study / name).unlink()
    assert write(study).is_file()


def test_a_file_of_ours_that_was_changed_is_not_replaced(study: Path) -> None:
    write(study)
    page = study / "report.html"
    page.write_text(page.read_text(encoding="utf-8") + "<!-- my notes -->", encoding="utf-8")
    with pytest.raises(WriteError, match="was changed since"):
        write(study)
    assert page.read_text(encoding="utf-8").endswith("<!-- my notes -->")


@pytest.mark.parametrize("name", ["figures", "tables"])
def test_nothing_is_written_or_removed_through_a_link(
    study: Path, tmp_path: Path, name: str
) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "old.svg").write_bytes(b"mine")
    (study / name).symlink_to(other)
    with pytest.raises(WriteError, match="is a link, and it never writes through one"):
        write(study)
    assert content(other) == {"old.svg": b"mine"}


def test_a_link_in_the_way_is_not_followed(study: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.html"
    target.write_text("mine")
    (study / "report.html").symlink_to(target)
    with pytest.raises(WriteError, match="was not written by lastlayer report"):
        write(study)
    assert target.read_text() == "mine"
    (study / "report.html").unlink()
    for name in (own_files.LOCK, own_files.MANIFEST):
        (study / name).unlink(missing_ok=True)
        (study / name).symlink_to(target)
        with pytest.raises(WriteError, match=f"{name} is a link"):
            write(study)
        assert target.read_text() == "mine"
        (study / name).unlink()


def test_an_altered_manifest_reaches_nothing_outside(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    replace_report(folder, {"figures/a.svg": b"a"})
    victims = [tmp_path / "thesis.pdf", folder / "results.sqlite", folder / "figures" / "b"]
    for path in victims:
        path.write_bytes(b"a")
    names = ["../thesis.pdf", "results.sqlite", "figures/../results.sqlite", "figures/../../x", ""]
    digests = json.loads((folder / own_files.MANIFEST).read_text())["files"]["figures/a.svg"]
    (folder / own_files.MANIFEST).write_text(json.dumps({"files": dict.fromkeys(names, digests)}))
    replace_report(folder, {})
    assert all(path.is_file() for path in victims)


@pytest.mark.parametrize(
    "text",
    [
        '{"files": {"a": 1}}',
        "[" * 99999,
        *(pytest.param(text, marks=pytest.mark.slow) for text in ("", "[]", "{", '{"files": 3}')),
    ],
)
def test_a_damaged_manifest_means_that_nothing_is_ours(study: Path, text: str) -> None:
    write(study)
    (study / own_files.MANIFEST).write_text(text)
    (study / "tables" / "accuracy.csv").write_text("mine")
    with pytest.raises(WriteError, match=r"accuracy\.csv"):
        write(study)
    assert (study / "tables" / "accuracy.csv").read_text() == "mine"


@pytest.mark.parametrize(
    "after", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 7))]
)
def test_a_report_that_was_interrupted_can_be_made_again(
    study: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    write(study)
    write_study(study, [Stream(heads=("mean", "slda"), orders=(0, 1))])
    calls, write_whole = iter(range(99)), own_files.in_place_of

    def interrupted(path: Path) -> object:
        if next(calls) == after:
            raise KeyboardInterrupt
        return write_whole(path)

    with monkeypatch.context() as patch:
        patch.setattr(own_files, "in_place_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(study)
    again = write(study).read_bytes()
    other = study.with_name("other")
    other.mkdir()
    shutil.copy(study / "results.sqlite", other)
    assert write(other).read_bytes() == again.replace(b"least: study", b"least: other")


def test_tables_that_a_page_is_made_from_stay(study: Path) -> None:
    write(study)
    (study / "results.sqlite").unlink()
    tables = {n: t for n, t in content(study / "tables").items() if n.endswith(".csv")}
    for _ in range(2):
        write(study)
        assert tables.items() <= content(study / "tables").items()


def test_a_second_report_waits_for_the_first(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_files, "PATIENCE", 0.01)
    with FileLock(study / own_files.LOCK), pytest.raises(BusyError, match="another process"):
        write(study)
    assert not (study / "report.html").exists()


@pytest.mark.slow
def test_two_reports_at_once(study: Path) -> None:
    code = "import sys; from lastlayer.report import write; write(sys.argv[1])"
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(study)], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate()[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    listed = json.loads((study / own_files.MANIFEST).read_text())["files"]
    assert listed.keys() == {n for n in content(study) if n.startswith(("fig", "tab", "report"))}
    assert not [name for name in os.listdir(study / "figures") if name.startswith(".")]
