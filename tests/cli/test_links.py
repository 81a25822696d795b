"""Links are followed when a file is written: what they lead to changes, and they stay."""

from collections.abc import Callable
from pathlib import Path

import newcomer
import numpy as np
import polars as pl
import pytest
from newcomer import birds, run

import lastlayer as ll
from lastlayer.cli import out as cli
from lastlayer.errors import WriteError

Patch = pytest.MonkeyPatch
Printed = pytest.CaptureFixture[str]
DATA = ll.Features.from_arrays(np.eye(4), ["a", "b", "a", "b"], test=0.5)
CLF = ll.HeadClassifier("mean").fit(np.eye(4), ["a", "b", "a", "b"])


def write_table(path: Path) -> None:
    cli.write_table(pl.DataFrame({"label": ["a"]}), path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "features.safetensors": DATA.save,
    "head.safetensors": CLF.save,
    "bare.safetensors": CLF.head_.save,
    "head.onnx": CLF.export_onnx,
    "labels.csv": write_table,
    "labels.parquet": write_table,
}
every_writer = pytest.mark.parametrize("name", WRITERS)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir())


@every_writer
def test_what_a_chain_of_links_leads_to_is_written(tmp_path: Path, name: str) -> None:
    """Beside the target, relative to each link, with nothing left over."""
    expected, target = tmp_path / "plain" / name, tmp_path / "v1" / name
    WRITERS[name](expected)
    target.parent.mkdir()
    target.write_bytes(b"old")
    (tmp_path / "live").symlink_to(Path("v1") / name)
    link = tmp_path / name
    link.symlink_to("live")
    WRITERS[name](link)
    assert link.is_symlink()
    assert (tmp_path / "live").is_symlink()
    assert not target.is_symlink()
    assert target.read_bytes() == expected.read_bytes()
    assert names_in(tmp_path) == sorted(["live", name, name, name])


@every_writer
def test_a_broken_link_gets_its_file(tmp_path: Path, name: str) -> None:
    link = tmp_path / name
    link.symlink_to(Path("not") / "yet" / name)
    WRITERS[name](link)
    assert link.is_symlink()
    assert (tmp_path / "not" / "yet" / name).is_file()


@every_writer
def test_links_in_a_circle_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("other")
    (tmp_path / "other").symlink_to(name)
    with pytest.raises(WriteError, match="its links lead in a circle"):
        WRITERS[name](tmp_path / name)
    assert names_in(tmp_path) == sorted([name, "other"])


def test_a_link_to_a_folder_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/dev/null")):
        link = tmp_path / "link"
        link.symlink_to(place)
        with pytest.raises(WriteError, match="is a folder or a device"):
            CLF.save(link)
        assert link.is_symlink()
        link.unlink()


def test_the_live_head_forgets_where_its_rows_are(
    tmp_path: Path, monkeypatch: Patch, capsys: Printed
) -> None:
    newcomer.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    v1, live = Path("v1.safetensors"), Path("live.safetensors")
    live.symlink_to(v1)
    assert run(monkeypatch, f"fit birds.csv --label species --head mean --out {live}") == 0
    assert run(monkeypatch, f"fit week.parquet --label species --head {live}") == 0
    assert run(monkeypatch, f"forget {live} week.parquet --label species") == 0
    assert live.is_symlink()
    assert not v1.is_symlink()
    counts = ll.HeadClassifier.load(v1).head_.class_counts
    assert counts is not None
    assert counts.tolist() == [100, 100, 100, 0]
    owls = birds().query("species == 'owl'").filter(like="z_")
    assert "owl" not in ll.HeadClassifier.load(v1).predict(owls)
    capsys.readouterr()
    assert run(monkeypatch, f"predict {live} birds.csv --out birds.csv") == 1
    Path("loop.safetensors").symlink_to("loop.safetensors")
    for verb in (
        "fit birds.csv --label species --head mean --out loop.safetensors",
        "forget loop.safetensors week.parquet --label species",
    ):
        capsys.readouterr()
        assert run(monkeypatch, verb) == 1
        assert "its links lead in a circle" in capsys.readouterr().err


def test_an_input_is_not_overwritten_through_a_link(
    tmp_path: Path, monkeypatch: Patch, capsys: Printed
) -> None:
    newcomer.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = Path("birds.csv").read_bytes()
    Path("h.safetensors").symlink_to("birds.csv")
    fit = "fit birds.csv --label species --head mean --out h.safetensors --force"
    assert run(monkeypatch, fit) == 1
    assert "--out would overwrite an input" in capsys.readouterr().err
    assert Path("birds.csv").read_bytes() == before
