"""A head that the program has never seen goes everywhere with one class and one card."""

import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import polars as pl
import pytest
from sklearn.datasets import load_iris

import lastlayer as ll
from lastlayer import catalogue
from lastlayer.cli import main
from unseen_head import CARD

sys.path.append(str(Path(__file__).parents[1] / "heads"))
import test_battery

BATTERY = [
    check
    for name, check in vars(test_battery).items()
    if name.startswith("test_") and "name" in signature(check).parameters
]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the card into the catalogue, and touch nothing else."""
    monkeypatch.setitem(catalogue.HEADS, CARD.name, CARD)  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", ["exact", pytest.param("paper", marks=pytest.mark.slow)])
@pytest.mark.parametrize("check", BATTERY, ids=lambda check: check.__name__)
def test_it_passes_the_battery(check: Callable[..., None], preset: str, tmp_path: Path) -> None:
    given = {"name": CARD.name, "preset": preset, "tmp_path": tmp_path, "used": True, "gone": 0}
    check(**{name: given[name] for name in signature(check).parameters})


def test_it_is_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["lastlayer", "list", "heads"])
    with pytest.raises(SystemExit, match="0"):
        main()
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "midrange" in line)
    assert CARD.formula in line
    assert CARD.use in line


def test_it_is_an_estimator() -> None:
    z, y = load_iris(return_X_y=True)
    assert ll.HeadClassifier("midrange").fit(z, y).score(z, y) > 0.85


@pytest.mark.slow
def test_it_is_compared_without_being_named(cifar10: ll.Features) -> None:
    table = ll.compare(cifar10, "cifar10", orders=[0], device="cpu")
    assert table.filter(head="midrange", task=4)["accuracy"][-1] > 0.2


@pytest.mark.usefixtures("undrawn")
def test_it_goes_through_plan_store_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'preset = "exact"\nseeds = "0-1"\n[[experiment]]\nfeatures = ["cifar10"]\n'
        'scenario = "cifar10"\nheads = ["mean", "midrange"]\n'
    )
    out = tmp_path / "out"
    for extra in (["--dry-run"], []):
        arguments = ["lastlayer", "run", str(plan), "--out", str(out), "--device", "cpu", *extra]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit, match="0"):
            main()
    study = ll.load_study(out)
    assert study.done.filter(head="midrange")["final"].min() > 0.2
    assert "midrange" in (out / "report.html").read_text(encoding="utf-8")
    assert "midrange" in pl.read_csv(out / "tables" / "accuracy.csv")["head"].to_list()


def test_the_paper_stays_the_papers() -> None:
    assert CARD.name not in catalogue.PAPER_HEADS
    assert CARD.name in catalogue.all_heads()
