"""The command line: what it writes, and how it says what is wrong."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer

from lastlayer import load_features
from lastlayer.cli import app, main
from lastlayer.cli.out import prepare
from lastlayer.cli.run import View
from lastlayer.core.progress import bar
from lastlayer.errors import OptionError


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["lastlayer", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "40")
    with pytest.raises(SystemExit) as exit_:
        main()
    return int(exit_.value.code or 0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    day = np.arange(20) // 5
    np.savez(tmp_path / "a.npz", emb=np.eye(20), y=np.arange(20) % 2, day=day, hour=day)
    return tmp_path / "a.npz"


def test_import(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    out = table.parent / "new folder" / "mine.safetensors"
    options = ["--label", "y", "--domain", "day", "--domain", "hour", "--test", 0.3, "--seed", 1]
    assert run(monkeypatch, "import", table, "--embedding", "emb", *options, "--out", out) == 0
    assert (
        "14 train, 6 test, 20 features, labels: y (2), day (4), hour (4)" in capsys.readouterr().out
    )
    assert load_features(out).label == "y"
    assert os.listdir(out.parent) == [out.name]


def test_import_never_overwrites_what_it_reads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    before = table.read_bytes()
    options = ["--embedding", "emb", "--label", "y", "--out", table]
    assert run(monkeypatch, "import", table, *options) == 1
    assert "--out would overwrite an input" in capsys.readouterr().err
    assert table.read_bytes() == before
    missing = table.with_name("missing.npz")
    assert run(monkeypatch, "import", missing, *options, "--force") == 1
    assert str(missing) in capsys.readouterr().err
    assert table.read_bytes() == before


def test_import_overwrites_only_if_told_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    out = table.parent / "mine.safetensors"
    out.write_bytes(b"precious")
    assert run(monkeypatch, "import", table, "--out", out) == 1
    assert capsys.readouterr().err.endswith("choose another file, or overwrite with --force\n")
    assert out.read_bytes() == b"precious"
    assert run(monkeypatch, "import", table, "--out", out, "--force") == 0
    assert capsys.readouterr().out.startswith("embedding: 'emb'; label: 'y'\nleft out columns day")
    assert len(load_features(out).test) == 4


def test_extract_never_overwrites_weights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"precious")
    options = ["--root", tmp_path, "--backbone", "resnet20-cifar100", "--weights", weights]
    assert run(monkeypatch, "extract", "cifar10", *options, "--out", weights) == 1
    assert "--out would overwrite an input" in capsys.readouterr().err
    assert weights.read_bytes() == b"precious"


def test_an_error_is_one_line_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    out = table.parent / "mine.safetensors"
    command = ["import", table, "--embedding", "em[b]", "--label", "y", "--out", out]
    assert run(monkeypatch, *command) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "error: unknown column 'em[b]'; did you mean 'emb'? there are: emb, y, day, hour\n"
    )
    assert not out.exists()


def test_a_place_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    options = ["--embedding", "emb", "--label", "y", "--out", table / "below a file"]
    assert run(monkeypatch, "import", table, *options) == 1
    assert capsys.readouterr().err.startswith("error: cannot write")


@pytest.mark.parametrize("command", ["import", "extract"])
def test_the_place_is_looked_at_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
) -> None:
    needed = {"import": ["--embedding", "z", "--label", "y"]}
    needed["extract"] = ["--root", "nowhere", "--backbone", "resnet20-cifar10"]
    assert run(monkeypatch, command, "nothing.npz", *needed[command], "--out", tmp_path) == 1
    assert "--out must be a file that can be written" in capsys.readouterr().err


@pytest.mark.parametrize("locked", ["a", "."])
def test_a_file_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    (tmp_path / "a").touch()
    prepare(tmp_path / "a")
    # Not by its mode: an administrator may write everything.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / locked)
    with pytest.raises(OptionError, match="must be a file that can be written"):
        prepare(tmp_path / "a")


def test_wrong_usage_has_its_own_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    assert run(monkeypatch, "import", table) == 2
    assert run(monkeypatch, "imprt") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_extract_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ["--root", tmp_path, "--backbone", "resnet20-cifar10", "--out", tmp_path / "a"]
    assert run(monkeypatch, "extract", "cifar11", *options) == 1
    assert "did you mean 'cifar10'" in capsys.readouterr().err
    assert run(monkeypatch, "extract", "cifar10", *options) == 1
    assert "there is no cifar-10-batches-py or cifar-10-batches-bin in" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_file_made_for_another_scenario_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path
) -> None:
    out = table.parent / "mine.safetensors"
    options = ["--embedding", "emb", "--label", "y", "--out", out]
    assert run(monkeypatch, "import", table, *options) == 0
    assert run(monkeypatch, "compare", out, "--scenario", "core10_lifelong", "--heads", "mean") == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {out}: scenario 'core10_lifelong' needs the label columns")
    assert "lastlayer extract core50 --root DIR --backbone resnet18" in printed


def test_the_commands_of_the_docs_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "features.md").read_text()
    commands = [
        shlex.split(line)[1:] for line in page.splitlines() if line.startswith("lastlayer im")
    ]
    monkeypatch.chdir(tmp_path)
    columns = {"species": ["owl", "emu"] * 10, "session": [1, 2] * 10}
    columns |= {"part": ["train"] * 15 + ["test"] * 5}
    z = np.eye(20)
    np.savez("birds.npz", z_train=z, y_train=columns["session"], z_test=z, y_test=np.arange(20) % 2)
    pl.DataFrame({"z": list(z), **columns}).write_parquet("birds.parquet")
    wide = {f"z_{i}": z[:, i] for i in range(20)}
    pl.DataFrame({**wide, "species": columns["species"]}).write_csv("birds.csv")
    for command, n_train in zip(commands, (15, 16, 20), strict=True):
        assert run(monkeypatch, *command) == 0
        assert len(load_features(command[-1]).train) == n_train


def lastlayer(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the program in a process of its own."""
    code = "from lastlayer.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_list_on_a_terminal_that_knows_only_ascii() -> None:
    done = lastlayer("list", "heads", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"z\xb7A_i" in done.stdout


def test_a_reader_that_has_gone_is_not_told() -> None:
    read, write = os.pipe()
    os.close(read)
    code = "from lastlayer.cli import main; main()"
    with os.fdopen(write, "w") as gone:
        command = [sys.executable, "-c", code, "list", "heads"]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            ZeroDivisionError("by\nzero [/nope]"),
            70,
            "ZeroDivisionError: by zero [/nope]; this",
        ),
        (MemoryError(), 1, "error: this needs more memory than there is"),
        (KeyboardInterrupt(), 130, "stopped"),
        (OSError(28, "No space left on device"), 1, "error: [Errno 28] No space left on device"),
    ],
)
def test_anything_else_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("lastlayer.cli.list.columns", fail)
    assert run(monkeypatch, "list", "heads") == code
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1
    assert "Traceback" not in printed


def test_the_traceback_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTLAYER_DEBUG", "1")
    monkeypatch.setattr("lastlayer.cli.list.columns", lambda *_, **__: 1 // 0)
    monkeypatch.setattr(sys, "argv", ["lastlayer", "list", "heads"])
    with pytest.raises(ZeroDivisionError):
        main()


def test_every_word_of_the_help_is_shown() -> None:
    """Typer takes [word] for markup and leaves it out."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    helps = {
        (name, option.name): option.help
        for name, command in commands.items()
        for option in command.params
        if not getattr(option, "hidden", False)
    }
    assert len(helps) > 80
    assert not {where: text for where, text in helps.items() if re.search(r"\[[a-z/]", text or "")}
    assert all(helps.values())


def test_a_path_with_glob_characters_names_one_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, labels in (("birds1.parquet", ["x", "y"]), ("birds[1].parquet", ["owl", "emu"])):
        with (tmp_path / name).open("wb") as file:
            pl.DataFrame({"z": np.eye(4), "y": labels * 2}).write_parquet(file)
    out = tmp_path / "tt[/nope].safetensors"
    options = ["--embedding", "z", "--label", "y", "--test", 0.5, "--out", out, "--force"]
    assert run(monkeypatch, "import", tmp_path / "birds[1].parquet", *options) == 0
    assert load_features(out).names["y"] == ("emu", "owl")
    assert run(monkeypatch, "import", tmp_path / "birds*.parquet", *options) == 1
    assert "birds*.parquet; it must be a .parquet file" in capsys.readouterr().err


def test_brackets_in_a_name_are_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with bar("folder on timm:[/nope]", unit="images") as tell:
        tell(1, 2)
    with View(quiet=False) as view:
        view.start(1, 0)
        view._finals["tt[/nope].safetensors"]["mean"].append(0.5)
    assert "[/nope]" in capsys.readouterr().err


def test_a_command_whose_output_is_closed_ends_well():
    command = f"{sys.executable} -m lastlayer list plans >&-"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
