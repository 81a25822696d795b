"""Every kind of file that lastlayer reads: an example of each, and what reads it."""

import contextlib
import io
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors.torch import save_file

import lastlayer as ll
from lastlayer.cli import main

PLAN = """
preset = "paper"
seeds = "0-1"
[[experiment]]
features = "features.safetensors"
scenario = ["incremental:2", { kind = "iid" }]
heads = ["linear", "slda"]
lr = [0.1, 0.01]
[[experiment]]
features = "features.safetensors"
scenario = "iid"
heads = ["mean"]
subset = [10, "all"]
"""


class Altered(AssertionError):
    """A checksummed file was changed, and read as if it were not."""


class Untidy(AssertionError):
    """The command line ended in another way than one line and a code."""


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    example: str  # its path below the folder of examples
    read: Callable[[Path], Any]  # what Python does with one
    command: tuple[str, ...] = ()  # what the command line does with one; FILE is its path
    trusted: Callable[[Any], Any] | None = None  # what must be as it was, if reading succeeds
    weight: int = 10  # how often it comes up


def make_examples(folder: Path) -> None:
    """Write one good file of each kind, through the doors that users have."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(48) % 4
    z = 4 * torch.eye(4)[y] + torch.randn(48, 4, generator=generator)
    data = ll.Features.from_arrays(z, y, session=torch.arange(48) // 24)
    data.save(folder / "features.safetensors")
    for name in ("slda", "cosine", "knn"):
        head = ll.make_head(name, in_features=4)
        head.observe(z, y)
        head.save(folder / f"{name}.safetensors")
    labels = [("emu", "owl", "ibis", "kiwi")[c] for c in y.tolist()]
    np.savez_compressed(folder / "table.npz", z=z.numpy(), y=np.array(labels))
    pl.DataFrame({"z": z.numpy(), "y": labels}).write_parquet(folder / "table.parquet")
    _make_tables(folder, z, labels)
    (folder / "plan.toml").write_text(PLAN)
    torch.save({"fc.weight": z, "fc.bias": y.float()}, folder / "weights.pt")
    torch.save({"fc.weight": z}, folder / "old.pt", _use_new_zipfile_serialization=False)
    from PIL import Image  # noqa: PLC0415  (only here)

    pixels = np.arange(48 * 48 * 3, dtype=np.uint8).reshape(48, 48, 3)
    for suffix in ("png", "jpg", "gif", "tif", "webp", "ppm", "bmp"):
        Image.fromarray(pixels).save(folder / f"image.{suffix}")
    with contextlib.chdir(folder):
        code, said = run("run", "plan.toml", "--out", "study", "--quiet")
        assert code == 0, said


def _make_tables(folder: Path, z: torch.Tensor, labels: list[str]) -> None:
    """Write the same embeddings as every other kind of table."""
    frame = pl.DataFrame({"z": z.numpy().tolist(), "y": labels})
    text = frame.with_columns(pl.Series("z", [str(row) for row in z.tolist()]))
    text.write_csv(folder / "table.csv")
    text.write_csv(folder / "table.tsv", separator="\t")
    frame.write_ipc(folder / "table.arrow")
    frame.write_ipc_stream(folder / "table.ipc")
    frame.write_ndjson(folder / "table.jsonl")
    torch.save({"z": z, "y": labels}, folder / "table.pt")
    codes = torch.tensor([sorted(set(labels)).index(label) for label in labels])
    save_file({"z": z, "y": codes}, folder / "table.safetensors")
    np.save(folder / "z.npy", z.numpy())
    np.save(folder / "y.npy", codes.numpy())


def run(*arguments: str) -> tuple[int, str]:
    """Run the command line in this process; give its code and what it wrote to stderr."""
    before, sys.argv = sys.argv, ["lastlayer", *arguments]
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as end:
        return int(end.code or 0), errors.getvalue()
    finally:
        sys.argv = before
    return 0, errors.getvalue()


def check_command(*arguments: str) -> None:
    """Raise Untidy unless a command ends well, or in one line with a code that says why."""
    code, said = run(*arguments)
    if code not in (0, 1, 2) or "Traceback" in said or "panicked" in said:
        raise Untidy(f"code {code}: {said[-400:]}")


def _import(path: Path) -> Any:
    from lastlayer.data.from_tables import import_features  # noqa: PLC0415

    return import_features(path, "z", "y")


def _plan(path: Path) -> Any:
    from lastlayer.study.plan_file import read_plan  # noqa: PLC0415

    return read_plan(str(path))


def _results(path: Path) -> Any:
    """Read results in a folder of their own, as they always lie."""
    folder = path.parent / "study"
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    path.rename(folder / "results.sqlite")
    study = ll.results.load_study(folder)
    return study, {name: study.arrays(name) for name in study.array_names()}


def _results_content(loaded: Any) -> Any:
    study, arrays = loaded
    table = study.runs.sort("digest").drop("message", strict=False)
    packed = {n: {d: a.tobytes() for d, a in by.items()} for n, by in arrays.items()}
    return table.write_csv(), packed


def _table(path: Path) -> Any:
    """Make the page anew from tables of which one is damaged."""
    folder = path.parent / "page" / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for other in (path.parent / "examples" / "study" / "tables").glob("*.csv"):
        (folder / other.name).write_bytes(other.read_bytes())
    path.rename(folder / "accuracy.csv")
    return ll.report.write(folder.parent)


def _image(path: Path) -> Any:
    from lastlayer.extraction.datasets.decoding import read_image  # noqa: PLC0415

    return read_image(path)


def _weights(path: Path) -> Any:
    from lastlayer.extraction.backbones.weight_files import read_state  # noqa: PLC0415

    return read_state(path, "weights")


def _tensors(data: Any) -> Any:
    splits = (data.train, data.test)
    columns = [(n, c.tolist()) for s in splits for n, c in s.labels.items()]
    return data.names, data.label, [s.z.tolist() for s in splits], columns


def _state(head: Any) -> Any:
    return {name: value.tolist() for name, value in head.state_dict().items()}


IMPORT = (
    "import", "FILE", "--embedding", "z", "--label", "y", "--out", "made.safetensors", "--force",
)  # fmt: skip
COMPARE = ("compare", "FILE", "--incremental", "2", "--heads", "mean", "--orders", "1")
KINDS = {
    "features": Kind("features.safetensors", ll.load_features, COMPARE, _tensors),
    "head slda": Kind("slda.safetensors", ll.load_head, (), _state),
    "head cosine": Kind("cosine.safetensors", ll.load_head, (), _state),
    "head knn": Kind("knn.safetensors", ll.load_head, (), _state),
    "results": Kind(
        "study/results.sqlite", _results, ("export", "study", "made.csv"), _results_content
    ),
    "plan": Kind("plan.toml", _plan, ("run", "FILE", "--dry-run")),
    "table npz": Kind("table.npz", _import, IMPORT),
    "table parquet": Kind("table.parquet", _import, IMPORT),
    **{
        f"table {suffix}": Kind(f"table.{suffix}", _import, IMPORT, weight=5)
        for suffix in ("csv", "tsv", "arrow", "ipc", "jsonl", "pt")
    },
    "table safetensors": Kind("table.safetensors", _import, IMPORT, weight=5),
    "table npy": Kind("z.npy", _import, IMPORT, weight=5),
    "table of a report": Kind("study/tables/accuracy.csv", _table, weight=1),
    "state dict": Kind("weights.pt", _weights),
    "state dict, old": Kind("old.pt", _weights),
    "state dict, safetensors": Kind("slda.safetensors", _weights),
    **{
        f"image {suffix}": Kind(f"image.{suffix}", _image, weight=3)
        for suffix in ("png", "jpg", "gif", "tif", "webp", "ppm", "bmp")
    },
}


def repack(path: Path) -> None:
    """Write an archive anew after one of its members was damaged: its checksums then fit."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
