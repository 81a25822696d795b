"""The commands that train heads, and the list of what there is: their text and their errors."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

import lastlayer
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.catalogue.scenario_cards import KINDS, SCENARIOS
from lastlayer.cli import main
from lastlayer.data import Features

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Call:
    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["lastlayer", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as exit_:
            main()
        return int(exit_.value.code or 0)

    return call


@pytest.fixture
def features(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 4
    z = 4 * torch.eye(4)[y] + torch.randn(240, 4, generator=generator)
    names = ["ant", "bee", "cat", "dog"]
    path = tmp_path / "mine.safetensors"
    Features.from_arrays(z, [names[c] for c in y], day=torch.arange(240) // 60).save(path)
    return path


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", ["run", "compare", "list", "import", "extract", "export"]),
        ("list", ["heads, scenarios, features, datasets, backbones or plans"]),
        ("compare", ["features", "--incremental", "--by", "--heads", "--orders", "--out"]),
        ("run", ["--out", "--features-dir", "--dry-run", "--quiet", "--json", "--wait"]),
        ("export", ["csv or .parquet"]),
        ("import", ["--embedding", "--label", "--domain"]),
        ("extract", ["--root", "--backbone", "--weights"]),
    ],
)
def test_every_command_has_help(
    run: Call, capsys: Captured, command: str, words: list[str]
) -> None:
    assert run(*filter(None, [command]), "--help") == 0
    text = capsys.readouterr().out.lower()
    assert all(word in text for word in words)


def test_list_has_one_line_for_each(run: Call, capsys: Captured) -> None:
    assert run("list") == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    for name in ("heads", "slda", "core10_mix", "cifar100", "resnet20-cifar10"):
        assert name in names
    assert run("list", "heads") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(HEADS)
    assert run("list", "scenarios") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(SCENARIOS) + len(KINDS)


def test_list_of_what_there_is_not(run: Call, capsys: Captured) -> None:
    assert run("list", "head") == 1
    assert "did you mean 'heads'" in capsys.readouterr().err


def test_compare(run: Call, capsys: Captured, features: Path) -> None:
    out = features.parent / "new" / "table.csv"
    heads = ["--heads", "slda,linear", "--heads", "cosine+single"]
    assert run("compare", features, "--incremental", 2, *heads, "--orders", 2, "--out", out) == 0
    text = capsys.readouterr().out
    assert " test rows of " in text.splitlines()[0]
    ranking = [line.split()[:2] for line in text.splitlines() if line.startswith("  ")]
    ranking = [words for words in ranking if words[0].rstrip(".").isdigit()]
    assert {head for _, head in ranking} == {"slda", "linear", "cosine+single"}
    assert "softmax regression, converged" in text
    assert "kernel_ridge of all rows: " in text
    assert "Measured on the " in text
    typed = text.partition("use `")[2].partition("`")[0]
    assert shlex.split(typed) == [
        "lastlayer", "advise", str(features), "--scenario", "incremental:2"
    ]  # fmt: skip
    assert "Use " not in text
    assert text.splitlines()[-1] == f"wrote {out}"
    table = pl.read_csv(out)
    assert table.columns == ["head", "mask", "order", "task", "epoch", "accuracy"]
    assert table.height == 3 * 2 * (1 + 2 * 5)
    again = out.with_suffix(".parquet")
    assert run("compare", features, "--incremental", 2, *heads, "--orders", 2, "--out", again) == 0
    assert pl.read_parquet(again)["head"].equals(table["head"])


def test_orders_are_a_number_or_seeds(run: Call, capsys: Captured, features: Path) -> None:
    out = features.parent / "table.csv"
    options = ["--incremental", 2, "--heads", "mean", "--out", out]
    for text, seeds in [("2", [0, 1]), ("0,3", [0, 3]), ("1-2,5", [1, 2, 5]), ("4-4", [4])]:
        assert run("compare", features, *options, "--orders", text) == 0
        assert sorted(set(pl.read_csv(out)["order"])) == seeds
        noun = "order" if len(seeds) == 1 else "orders"
        assert f"incremental:2, {len(seeds)} {noun} of its tasks" in capsys.readouterr().out


def test_without_any_reference_the_ranking_stands(
    run: Call, capsys: Captured, features: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise lastlayer.errors.DataError("too many to retrain on here")

    monkeypatch.setattr("lastlayer.study.upper_bound", fail)
    options = ["--incremental", 2, "--heads", "mean,linear", "--orders", 1]
    assert run("compare", features, *options) == 0
    _, said = capsys.readouterr().out.split("Retrained on everything at once:\n")
    why = "too many to retrain on here\n"
    assert said.startswith(f"  none: {why}  none behind the map of random_ridge: {why}")


@pytest.mark.slow
def test_a_map_has_a_reference_of_its_own(run: Call, capsys: Captured, features: Path) -> None:
    options = ["--incremental", 2, "--heads", "mean,random_slda", "--orders", 1]
    assert run("compare", features, *options) == 0
    assert "softmax regression behind the map of random_slda, converged" in capsys.readouterr().out


def test_compare_by_a_column_and_another_label(run: Call, capsys: Captured, features: Path) -> None:
    assert run("compare", features, "--by", "day", "--heads", "mean", "--orders", 1) == 0
    assert "a task for each day, 1 order of its tasks" in capsys.readouterr().out
    options = ["--scenario", "iid", "--label", "day", "--heads", "mean", "--orders", 1]
    assert run("compare", features, *options) == 0
    assert "1.  mean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "or --scenario iid if they have no order"),
        (["--by", "day", "--incremental", 2], "got incremental:2 and mixed:day"),
        (["--incremental", 3], "divide the 4 classes"),
        (["--incremental", 3], "--incremental 2,1,1, or incremental:2,1,1 in a plan"),
        (["--incremental", 0], "divide the 4 classes, got 0"),
        (["--incremental", 9], "at most the number of classes, 4, got 9"),
        (["--scenario", "incremental"], "write incremental:5"),
        (["--by", "dya"], "did you mean 'day'"),
        (["--scenario", "lifelnog:day"], "did you mean 'lifelong'"),
        (["--incremental", 2, "--heads", "sldaa"], "did you mean 'slda'"),
        (["--incremental", 2, "--heads", "mean+single"], "'mean' takes no mask"),
        (["--incremental", 2, "--preset", "papr"], "preset must be"),
        (["--incremental", 2, "--label", "class"], "unknown label column 'class'"),
        (["--incremental", 2, "--lr", -1], "must be above 0"),
        (["--incremental", 2, "--device", "gpu"], "unknown device 'gpu'"),
        (["--incremental", 2, "--out", "table.txt"], "a table must be a .csv or .parquet file"),
        (["--incremental", 2, "--out", "."], "a table must be a .csv or .parquet file"),
        (["--incremental", 2, "--orders", "0"], "orders must be from 1 to 10000, got 0"),
        (["--incremental", 2, "--orders", "many"], "--orders: seeds must be"),
        (["--incremental", 2, "--orders", "9" * 30], "orders must be from 1 to 10000, got 999"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    run: Call, capsys: Captured, features: Path, options: list[object], message: str
) -> None:
    assert run("compare", features, *options) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1


def test_version(run: Call, capsys: Captured) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"lastlayer {lastlayer.__version__}\n"


def test_compare_says_what_to_do_with_a_table(run: Call, capsys: Captured) -> None:
    assert run("compare", "mine.npz", "--incremental", 5) == 1
    assert "make one with: lastlayer import mine.npz --embedding" in capsys.readouterr().err


def test_compare_names_features_that_are_not_there(run: Call, capsys: Captured) -> None:
    assert run("compare", "cifar11") == 1
    assert "did you mean 'cifar10'" in capsys.readouterr().err


def test_bundled_features_have_their_scenario(run: Call, capsys: Captured) -> None:
    assert run("compare", "cifar10", "--heads", "mean", "--orders", 1, "--device", "gpu") == 1
    assert "unknown device 'gpu'" in capsys.readouterr().err


def test_full_names_of_bundled_features_have_it_too(run: Call, capsys: Captured) -> None:
    assert run("compare", "cifar10/resnet20-cifar100", "--device", "gpu") == 1
    assert "unknown device 'gpu'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "options", "learned"),
    [
        ("coarse", [], "'cifar100' learns 'fine'"),
        ("fine", ["--scenario", "cifar100_mix"], "'cifar100_mix' learns 'coarse'"),
        ("fine", ["--scenario", "mixed:fine/coarse"], "'mixed:fine/coarse' learns 'coarse'"),
    ],
)
def test_no_other_label_is_learned_than_asked_for(
    run: Call, capsys: Captured, label: str, options: list[str], learned: str
) -> None:
    assert run("compare", "cifar100", "--label", label, *options) == 1
    assert f"{learned}, got --label {label}: choose another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "options"),
    [("fine", []), ("coarse", ["--by", "fine"]), ("coarse", ["--scenario", "cifar100_mix"])],
)
def test_a_label_that_fits_is_taken(
    run: Call, capsys: Captured, label: str, options: list[str]
) -> None:
    assert run("compare", "cifar100", "--label", label, *options, "--device", "gpu") == 1
    assert "unknown device 'gpu'" in capsys.readouterr().err
