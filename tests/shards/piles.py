"""Shards of one data set, in every layout that people have."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file

import lastlayer as ll
from lastlayer.cli import main

N, H = 3000, 12
SPECIES = ("owl", "emu", "ibis", "kiwi", "auk")


def run(monkeypatch: pytest.MonkeyPatch, command: str) -> int:
    """Type a command; give the code that it ends with."""
    monkeypatch.setattr(sys, "argv", ["lastlayer", *command.split()])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def cut(size: int) -> AbstractContextManager[object]:
    """Make a part of each group of shards of about so many bytes, while this lasts."""
    return mock.patch("lastlayer.evaluate.shards._group_bytes", return_value=size)


def data(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Blobs far from zero, their classes in no order."""
    random = np.random.default_rng(seed)
    y = random.integers(len(SPECIES), size=n)
    centres = np.random.default_rng(99).normal(size=(len(SPECIES), H)) * 2
    z = 5 + centres[y] + random.normal(size=(n, H))
    return z.astype(np.float32), np.array(SPECIES, dtype=object)[y]


def cuts(n: int, pieces: int) -> list[slice]:
    """Cut rows into uneven pieces."""
    ends = [round(n * (k / pieces) ** 1.3) for k in range(pieces + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def frame(z: np.ndarray, y: Sequence[object]) -> pl.DataFrame:
    return pl.DataFrame({"z": pl.Series(z, dtype=pl.Array(pl.Float32, z.shape[1])), "species": y})


def parquet(folder: Path, pieces: int = 4, as_list: bool = True) -> Path:
    z, y = data()
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(cuts(N, pieces)):
        table = frame(z[rows], list(y[rows]))
        table = table.with_columns(pl.col("z").arr.to_list()) if as_list else table
        table.write_parquet(folder / f"part-{number}.parquet", row_group_size=100)
    return folder


def ours(folder: Path, pieces: int = 4) -> Path:
    z, y = data()
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(cuts(N, pieces)):
        test = (z[:3], list(y[:3]))
        made = ll.Features.from_arrays(z[rows], list(y[rows]), test=test)
        made.save(folder / f"part-{number}.safetensors")
    return folder


def tensors(folder: Path, pieces: int = 4) -> Path:
    z, y = data()
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.array([SPECIES.index(name) for name in y])
    for number, rows in enumerate(cuts(N, pieces)):
        held = {"z": torch.from_numpy(z[rows]), "y": torch.from_numpy(numbers[rows])}
        save_file(held, folder / f"part-{number}.safetensors")
    return folder


def clip_retrieval(folder: Path, pieces: int = 12) -> Path:
    z, y = data()
    for name in ("img_emb", "metadata"):
        (folder / name).mkdir(parents=True)
    for number, rows in enumerate(cuts(N, pieces)):
        np.save(folder / "img_emb" / f"img_emb_{number}.npy", z[rows])
        table = pl.DataFrame({"image_path": ["x"] * len(y[rows]), "species": list(y[rows])})
        table.write_parquet(folder / "metadata" / f"metadata_{number}.parquet", row_group_size=70)
    return folder


def csv(folder: Path, pieces: int = 3) -> Path:
    z, y = data()
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(cuts(N, pieces)):
        columns = {f"z_{k}": z[rows][:, k] for k in range(H)}
        pl.DataFrame({**columns, "species": list(y[rows])}).write_csv(folder / f"{number}.csv")
    return folder
