"""The main job from the command line: what it says, what it refuses, and that it can be stopped."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
import torch
from tests.small_replay import BLOCK, small_root

from lastlayer.cli import main
from lastlayer.data import Features
from lastlayer.errors import BusyError, FileFormatError, MissingFileError
from lastlayer.results import load_study
from lastlayer.results.store import open_store

Captured = pytest.CaptureFixture[str]
Call = Callable[..., int]

PLAN = """
preset = "paper"
seeds = "0-1"
[[experiment]]
features = "mine.safetensors"
scenario = ["incremental:2", "iid"]
heads = ["linear", "mean"]
[[experiment]]
features = "core50/vgg16"
scenario = "iid"
optional = true
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Give a call of the command line in a folder with a plan and its features."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 4
    z = 4 * torch.eye(4)[y] + torch.randn(240, 4, generator=generator)
    Features.from_arrays(z, y).save(tmp_path / "mine.safetensors")
    (tmp_path / "plan.toml").write_text(PLAN)

    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["lastlayer", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.chdir(tmp_path)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with pytest.raises(SystemExit) as exit_:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return int(exit_.value.code or 0)

    return call


@pytest.fixture
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the page out, which takes longer than all else."""
    monkeypatch.setattr("lastlayer.report.write", lambda folder, study=None: folder / "report.html")


@pytest.mark.usefixtures("undrawn")
def test_a_plan_becomes_results(run: Call, capsys: Captured, tmp_path: Path) -> None:
    assert run("run", "plan.toml") == 0
    text, progress = capsys.readouterr()
    assert "8 of 8 runs in runs/plan; open runs/plan/report.html" in text
    assert (tmp_path / "runs" / "plan" / "report.html").is_file()
    assert "left out: no features 'core50/vgg16'" in text
    assert "lastlayer extract core50 --root DIR --backbone vgg16" in text
    assert "8 runs\n" in progress
    assert load_study(tmp_path / "runs" / "plan").done.height == 8
    assert run("run", "plan.toml") == 0
    assert "8 of them already done" in capsys.readouterr().err


@pytest.mark.usefixtures("_no_page")
def test_a_dry_run_says_what_would_run_and_writes_nothing(
    run: Call, capsys: Captured, tmp_path: Path
) -> None:
    assert run("run", "plan.toml", "--dry-run") == 0
    text = capsys.readouterr().out
    assert "8 runs, 8 to do, in a few seconds; results in runs/plan" in text
    assert not (tmp_path / "runs").exists()
    assert run("run", "plan.toml", "--quiet") == 0
    assert run("run", "plan.toml", "--dry-run") == 0
    assert "8 runs, 0 to do; results in runs/plan" in capsys.readouterr().out


def test_a_dry_run_of_nothing_is_nothing(run: Call, capsys: Captured, tmp_path: Path) -> None:
    block = '[[experiment]]\nfeatures = "core50/vgg16"\nscenario = "iid"\noptional = true\n'
    (tmp_path / "empty.toml").write_text(f'preset = "paper"\n{block}')
    assert run("run", "empty.toml", "--dry-run") == 0
    assert "0 runs, 0 to do; results in runs/empty" in capsys.readouterr().out
    assert run("run", "empty.toml", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["to_make"] == 0


@pytest.mark.usefixtures("_no_page")
def test_the_summary_can_be_read_by_a_program(run: Call, capsys: Captured, tmp_path: Path) -> None:
    assert run("run", "plan.toml", "--json", "--out", "here") == 0
    text, progress = capsys.readouterr()
    summary = json.loads(text)
    assert progress == ""
    assert (summary["runs"], summary["kept"], summary["failed"]) == (8, 8, 0)
    assert "lastlayer extract" in summary["missing"]["core50/vgg16"]
    final = (
        load_study(tmp_path / "here")
        .done.filter(scenario="iid")
        .group_by("head")
        .agg(pl.col("final").mean())
    )
    (best,) = (row for row in summary["best"] if row["scenario"] == "iid")
    assert best["mean"] == final["final"].max()


@pytest.mark.usefixtures("_no_page")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_runs_are_exported(run: Call, capsys: Captured, tmp_path: Path, suffix: str) -> None:
    assert run("run", "plan.toml", "--quiet") == 0
    assert run("export", "runs/plan", f"new/table.{suffix}") == 0
    assert "8 runs in new/table" in capsys.readouterr().out
    assert run("export", "runs/plan", f"new/table.{suffix}") == 1
    assert (
        "already exists: choose another file, or overwrite with --force" in capsys.readouterr().err
    )
    assert run("export", "runs/plan", f"new/table.{suffix}", "--force") == 0
    read = pl.read_csv if suffix == "csv" else pl.read_parquet
    table = read(tmp_path / "new" / f"table.{suffix}")
    assert (
        table["final"].to_list() == load_study(tmp_path / "runs" / "plan").done["final"].to_list()
    )


@pytest.mark.usefixtures("_no_page")
def test_a_folder_is_the_one_that_is_named(run: Call, tmp_path: Path) -> None:
    """Brackets mean nothing in it: s[1] is not s1."""
    assert run("run", "plan.toml", "--out", "s1", "--quiet") == 0
    (tmp_path / "plan.toml").write_text(PLAN.replace('["linear", "mean"]', '"slda"'))
    assert run("run", "plan.toml", "--out", "s[1]", "--quiet") == 0
    assert set(load_study(tmp_path / "s1").done["head"]) == {"linear", "mean"}
    assert set(load_study(tmp_path / "s[1]").done["head"]) == {"slda"}
    assert run("export", "s[1]", "[t].csv") == 0
    assert set(pl.read_csv(tmp_path / "[t].csv", glob=False)["head"]) == {"slda"}


@pytest.mark.usefixtures("_no_page")
def test_altered_results_are_said_in_one_line(run: Call, capsys: Captured, tmp_path: Path) -> None:
    assert run("run", "plan.toml", "--quiet") == 0
    with closing(sqlite3.connect(tmp_path / "runs" / "plan" / "results.sqlite")) as file:
        file.execute("UPDATE run SET final = 0.919 WHERE head = 'mean'")
        file.commit()
    capsys.readouterr()
    for arguments in (
        ["run", "plan.toml", "--quiet"],
        ["run", "plan.toml", "--dry-run"],
        ["export", "runs/plan", "t.csv"],
    ):
        assert run(*arguments) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: runs/plan/results.sqlite was altered after it was written")
        assert error.count("\n") == 1


def test_altered_results_are_not_reported(run: Call, capsys: Captured, tmp_path: Path) -> None:
    with open_store(tmp_path / "out"):
        pass
    with closing(sqlite3.connect(tmp_path / "out" / "results.sqlite")) as file:
        file.execute("CREATE VIEW more AS SELECT 1")
    assert run("report", "out") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: out/results.sqlite was altered by another program")
    assert error.count("\n") == 1


@pytest.mark.usefixtures("_no_page")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_full_disk_is_said_in_one_line(
    run: Call, capsys: Captured, tmp_path: Path, suffix: str
) -> None:
    assert run("run", "plan.toml", "--quiet") == 0
    (tmp_path / f"t.{suffix}").write_text("what was there")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        assert run("export", "runs/plan", f"t.{suffix}", "--force") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: cannot write t.{suffix}: ")
    assert (tmp_path / f"t.{suffix}").read_text() == "what was there"
    assert not list(tmp_path.glob(".t.*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "quik"], "did you mean 'quick'"),
        (["run", "gone.toml"], "no plan at gone.toml"),
        (["run", "plan.toml", "--device", "tpu"], "unknown device 'tpu'"),
        (["run", "plan.toml", "--out", "plan.toml/x"], "cannot write plan.toml/x"),
        (["export", "nowhere", "t.csv"], "no results in nowhere"),
        (["export", "nowhere", "t.txt"], "must end in .onnx, .csv or .parquet"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    run: Call, capsys: Captured, arguments: list[str], message: str
) -> None:
    assert run(*arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.mark.usefixtures("_no_page")
def test_a_second_writer_is_refused(run: Call, capsys: Captured, tmp_path: Path) -> None:
    with open_store(tmp_path / "runs" / "plan"):
        assert run("run", "plan.toml", "--quiet") == 1
    assert "another process is writing to runs/plan: wait for it with --wait" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_says_what_is_kept_and_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", "from lastlayer.cli import main; main()", "run", "demo"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    folder = tmp_path / "runs" / "demo"
    while child.poll() is None and not _kept(folder):
        time.sleep(0.05)
    child.send_signal(number)
    _, said = child.communicate(timeout=600)
    assert child.returncode == 128 + number
    kept = _kept(folder)
    assert 0 < kept < 18
    assert said.splitlines()[-1] == (
        f"stopped: {kept} of 18 runs saved in runs/demo; rerun the same command to resume"
    )


def _kept(folder: Path) -> int:
    try:
        return load_study(folder).done.height
    except (MissingFileError, FileFormatError, BusyError):  # it is being made
        return 0


def replay_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a plan of four networks and the images that it needs."""
    small_root(tmp_path / "cifar", monkeypatch)
    lines = [f"{key} = {json.dumps(value)}" for key, value in BLOCK.items()]
    text = "\n".join(['preset = "paper"', "seeds = 0", "[[replay]]", *lines])
    (tmp_path / "replay.toml").write_text(text)


@pytest.mark.usefixtures("undrawn")
def test_networks_are_trained_on_images(
    run: Call, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay_plan(tmp_path, monkeypatch)
    assert run("run", "replay.toml", "--root", "cifar", "--dry-run", "--device", "cpu") == 0
    text = capsys.readouterr().out
    setting = "balance 0.1, epochs 3, per_class 5, lr 0.05"  # what is not the paper's is said
    assert f"cifar10 images  incremental:3  {setting}  2" in text
    assert "4 runs, 4 to do, in " in text
    assert run("run", "replay.toml", "--root", "cifar", "--device", "cpu") == 0
    text = capsys.readouterr().out
    assert f"{setting}  weight_norm+group" in text
    assert "4 of 4 runs in runs/replay" in text
    assert run("export", "runs/replay", "table.csv") == 0
    assert pl.read_csv(tmp_path / "table.csv")["balance"].to_list() == [0.1, 0.1, 1.0, 1.0]
    assert run("run", "replay.toml", "--root", "cifar", "--dry-run", "--device", "cpu") == 0
    assert "4 runs, 0 to do; results in runs/replay" in capsys.readouterr().out


@pytest.mark.usefixtures("undrawn")
def test_what_other_plans_left_there_is_said(
    run: Call, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay_plan(tmp_path, monkeypatch)
    options = ("--root", "cifar", "--device", "cpu", "--out", "both")
    assert run("run", "replay.toml", *options) == 0
    assert "other plans" not in capsys.readouterr().out
    plan = tmp_path / "replay.toml"
    plan.write_text(plan.read_text().replace("seeds = 0", "seeds = 1"))
    assert run("run", "replay.toml", *options) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2].startswith("4 of 4 runs in both; ")
    assert said[-1].startswith("also in the folder and on the page: 4 runs of other plans")
    assert run("run", "replay.toml", *options, "--json") == 0
    assert json.loads(capsys.readouterr().out)["others"] == 4


def test_a_slip_found_in_the_data_names_the_plan(
    run: Call, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay_plan(tmp_path, monkeypatch)
    plan = tmp_path / "replay.toml"
    plan.write_text(plan.read_text().replace("per_class = 5", "per_class = 5000"))
    assert run("run", "replay.toml", "--root", "cifar") == 1
    said = "error: replay.toml: replay[0]: per_class must be at most the size of the smallest class"
    assert capsys.readouterr().err.startswith(said)


def test_without_images_it_says_where_they_come_from(run: Call, capsys: Captured) -> None:
    assert run("run", "replay") == 1
    error = capsys.readouterr().err
    assert "with --root DIR" in error
    assert "www.cs.toronto.edu" in error
