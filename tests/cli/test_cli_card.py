"""The card of a head says what the head is, and nothing that it is not."""

from pathlib import Path

import numpy as np
import pytest
from newcomer import run

import lastlayer as ll
from lastlayer.cli.card import card_of_head
from lastlayer.estimator import fitting

Patch, Printed = pytest.MonkeyPatch, pytest.CaptureFixture[str]


@pytest.fixture
def birds(newcomers_folder: Path, monkeypatch: Patch) -> None:
    """Make features of the newcomer's table, and a calibrated head."""
    assert run(monkeypatch, "import birds.csv --label species --out b.safetensors") == 0
    command = "fit b.safetensors --head slda --calibration 0.25 --out h.safetensors"
    assert run(monkeypatch, command) == 0


@pytest.mark.usefixtures("birds")
def test_a_card_of_a_head_that_lives(monkeypatch: Patch, capsys: Printed) -> None:
    capsys.readouterr()
    assert run(monkeypatch, "show h.safetensors --card") == 0
    card = capsys.readouterr().out
    assert card == card_of_head(Path("h.safetensors"), 20)
    sections = ("What it is", "What it has learned", "How it was judged", "Calibration", "Watch",
                "What it can do", "How to use it")  # fmt: skip
    assert [line[3:] for line in card.splitlines() if line.startswith("## ")] == list(sections)
    for said in (
        "# Card of h.safetensors: slda", "made by: unknown", "Learned 180 train rows of birds (",
        "180 rows of 3 classes, whose labels are text", "| emu | 60 | 20 | 100.0 |",
        "Of 60 rows that it had not learned", "Calibrated with 60 rows", "It is not being watched",
        "no row, only sums of them", "Forget a class without its rows: no",
        "counts and one scatter are checked", "--unknown 0.05",
    ):  # fmt: skip
        assert said in card, said
    assert run(monkeypatch, "watch h.safetensors b.safetensors --rows test") == 0
    assert run(monkeypatch, "fit b.safetensors --rows test --head h.safetensors") == 0
    assert run(monkeypatch, "forget h.safetensors b.safetensors --rows test --class emu") == 0
    card = card_of_head(Path("h.safetensors"), None)
    for said in (
        "- Learned 60 test rows of birds (", "- Forgot 20 test rows of birds (",
        "It may have changed since", "Calibration out of date", "- Is the head getting worse? ",
        "| emu | 60 | 20 | 100.0 |", "| kiwi | 80 | 20 | 100.0 |",
    ):  # fmt: skip
        assert said in card, said
    assert "--unknown" not in card.split("## How to use it")[1]
    assert str(Path.cwd()) not in card


def test_the_accuracy_of_a_card_is_that_of_the_calibration_rows(tmp_path: Path) -> None:
    z = np.random.default_rng(0).normal(size=(400, 8))
    y = np.where(z[:, 0] > 0, "yes", "no")
    clf = ll.HeadClassifier("mean").fit(z[:100], y[:100])
    clf.calibrate(z[100:], y[100:])
    clf.save(tmp_path / "h.safetensors")
    card = card_of_head(tmp_path / "h.safetensors", None)
    assert f"it got {clf.score(z[100:], y[100:]):.1%}"[:-1] in card
    assert "From what, is not recorded" in card


def test_classes_that_were_forgotten_are_marked(tmp_path: Path) -> None:
    z = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    y = np.arange(60) % 3
    clf = ll.HeadClassifier("mean").fit(z, y)
    fitting.forget(clf, None, only="1")
    clf.partial_fit(z[:3], [0, 2, 7], classes=[9])
    clf.save(tmp_path / "h.safetensors")
    card = card_of_head(tmp_path / "h.safetensors", None)
    assert "| 1 | not learned, or forgotten |" in card
    assert "| 7 | 1 |" in card
    assert "- Forgot class 1." in card
    assert "of 3 classes, whose labels are numbers" in card
    assert "It is not calibrated" in card
    assert "Nothing is recorded" in card


def test_names_of_classes_are_no_markup(tmp_path: Path) -> None:
    z = np.random.default_rng(0).normal(size=(6, 2))
    clf = ll.HeadClassifier("knn").fit(z, ["a|b", "<b>", "*c*", "a|b", "<b>", "*c*"])
    clf.save(tmp_path / "h_1_.safetensors")
    card = card_of_head(tmp_path / "h_1_.safetensors", 2)
    assert "The first 2 classes; --all lists 1 more" in card
    assert "\\*c\\*" in card
    assert "<b>" not in card
    assert "every row that it has learned" in card


@pytest.mark.usefixtures("birds")
def test_only_a_head_has_a_card(monkeypatch: Patch, capsys: Printed) -> None:
    assert run(monkeypatch, "show b.safetensors --card") == 1
    assert "--card is for the file of a head, and b.safetensors is none" in capsys.readouterr().err
    Path("folder").mkdir()
    for other in ("birds.csv", "folder"):
        assert run(monkeypatch, f"show {other} --card") == 1
