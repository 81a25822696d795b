"""Studies of unusual shape: the page leaves out what is not there, and says what went wrong."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from lastlayer import __version__
from lastlayer.errors import FileFormatError, MissingFileError, WriteError
from lastlayer.report import write
from made_up import Stream, iid, write_study
from read_page import Page

pytestmark = pytest.mark.usefixtures("undrawn")  # what charts look like is not asked here


def test_one_scenario_and_one_head(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [Stream(heads=("slda",), orders=(0,))])))
    assert page.sections == ["summary", "accuracy", "repairs", "runs", "plan"]
    assert "slda is the only head of this study: it ends at" in page.words


def test_without_streams_there_is_a_summary_too(tmp_path: Path) -> None:
    study = write_study(tmp_path, [iid("mine", "class", 4, heads=("mean", "knn"))])
    page = Page(write(study))
    assert page.sections == ["summary", "preliminary", "runs", "plan"]
    assert "mine, class: best on all data at once is" in page.words


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (("",), "The selection is made on test accuracy: it is a little too good"),
        ((" (0.2 held out)",), "The selection is made on training data that were held out"),
        (("", " (0.2 held out)"), "it is made on held-out training data"),
    ],
)
def test_the_page_says_what_a_selection_is_made_on(
    tmp_path: Path, ends: tuple[str, ...], said: str
) -> None:
    some = {"heads": ("linear", "cosine"), "lrs": (0.1, 0.01), "orders": (0,)}
    study = write_study(tmp_path, [iid(f"mine{end}", "class", 4, **some) for end in ends])
    page = Page(write(study))
    assert said in page.words
    assert len(page.rows("learning-rates")) == 2 * len(ends)


def test_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    names = [
        "</script><script>alert(1)</script>",
        "<b>bold</b> & co",
        "猫",
        "كلب",
        "|\n`",
        "a'\"\\",
    ]
    stream = Stream("incremental:3", "<i>mine</i>", n_classes=6, n_tasks=3, names=names)
    folder = write_study(tmp_path, [stream])
    page = Page(write(folder))
    assert not {"b", "i"} & {tag for tag, _ in page.tags}
    assert "alert(1)" in page.words
    pairs = page.rows("riskiest-pairs-i-mine-i-new-classes-in-3-tasks")
    assert {row["data of"] for row in pairs} <= set(names)
    text = (folder / "tables" / "riskiest-pairs-i-mine-i-new-classes-in-3-tasks.md").read_text()
    assert "<script" not in text
    assert len({line.replace(r"\|", "").count("|") for line in text.splitlines()[2:]}) == 1


def test_an_empty_study_says_so(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [])))
    assert "This study is empty" in page.words
    assert page.sections == ["runs", "plan"]


def test_a_study_in_progress_shows_what_is_there(tmp_path: Path) -> None:
    streams = [Stream(heads=("mean",)), Stream(heads=("slda",), state="planned")]
    page = Page(write(write_study(tmp_path, streams)))
    assert "in progress: 3 of 6 runs are still to be made" in page.words
    assert "mean ends at" in page.words
    assert page.rows("troubles")[0]["what happened"] == "not run yet"


def test_a_study_that_has_only_been_planned(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [Stream(state="planned")])))
    assert "57 of 57 runs are still to be made" in page.words
    assert page.sections == ["runs", "plan"]


def test_failed_and_diverged_runs_are_named(tmp_path: Path) -> None:
    streams = [
        Stream(heads=("linear", "mean"), diverged=(0, 1)),
        Stream(heads=("slda",), state="failed"),
    ]
    page = Page(write(write_study(tmp_path, streams)))
    assert "3 runs failed" in page.words
    assert "2 runs diverged" in page.words
    told = {row["head"]: row["what happened"] for row in page.rows("troubles")}
    assert told["slda"] == "failed: no <room> left"
    row = {row["head"]: row for row in page.rows("accuracy-cifar10-resnet20-cifar100")}["linear"]
    assert row["final accuracy, %"].endswith("(2 diverged)")


def test_a_head_that_always_diverges(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [Stream(heads=("linear",), diverged=(0, 1, 2))])))
    assert "3 runs diverged" in page.words
    (row,) = page.rows("accuracy-cifar10-resnet20-cifar100")
    assert row["final accuracy, %"].strip() == "(3 diverged)"


def test_another_version_is_named(tmp_path: Path) -> None:
    page = Page(write(write_study(tmp_path, [Stream(heads=("mean",))], version="0.0.7")))
    assert f"run by lastlayer 0.0.7, this page was made by lastlayer {__version__}" in page.words


def test_what_is_no_study_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no results in"):
        write(tmp_path / "nowhere")
    with sqlite3.connect(tmp_path / "results.sqlite") as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    with pytest.raises(FileFormatError, match="another program"):
        write(tmp_path)


def test_results_of_a_later_version_are_refused_in_words(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [])
    with sqlite3.connect(folder / "results.sqlite") as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(FileFormatError, match="written by a newer lastlayer"):
        write(folder)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [Stream(heads=("mean",))])
    (folder / "tables").write_text("a file where a folder should be")
    with pytest.raises(WriteError, match="cannot write the report"):
        write(folder)


def test_the_report_never_needs_torch() -> None:
    code = "import lastlayer.report, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
