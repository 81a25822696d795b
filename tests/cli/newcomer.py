"""Small tables as a newcomer has them, and the program as one runs it."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lastlayer.cli import main

NAMES = np.array(["emu", "ibis", "kiwi", "owl"])
H = 8


def birds(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Four kinds of birds, well apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    z = (3 * np.random.default_rng(9).normal(size=(4, H)))[y] + rng.normal(size=(n, H))
    z = z.astype(np.float32)
    return pd.DataFrame({**{f"z_{i}": z[:, i] for i in range(H)}, "species": NAMES[y]})


def run(monkeypatch: pytest.MonkeyPatch, command: str, *more: object) -> int:
    """Run the program in this process, through its entry point."""
    monkeypatch.setattr(sys, "argv", ["lastlayer", *command.split(), *map(str, more)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def write(folder: Path) -> None:
    """Write what a newcomer has: last month's birds, this week's, a customer's, and new ones."""
    frame = birds()
    old, new = frame[frame.species != "owl"], frame[frame.species == "owl"]
    old.to_csv(folder / "birds.csv", index=False)
    new[:20].to_parquet(folder / "week.parquet")
    old[:10].to_feather(folder / "customer.feather")
    birds(40, seed=1).drop(columns="species").to_json(
        folder / "unknown.jsonl", orient="records", lines=True
    )
    birds(40, seed=1).to_csv(folder / "known.csv", index=False)
