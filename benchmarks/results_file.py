"""The results of 10,000 runs: how large the file is, and how soon its table is there.

Each run has what a run of `quick` has: 5 tasks, 10 classes, accuracies after every epoch, norms,
biases and what would repair a loss.

    python -m benchmarks.results_file
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from lastlayer.results import load_study
from lastlayer.results.store import FILE, Record, open_store
from lastlayer.results.tables import final_accuracy

RUNS, BATCH = 10_000, 50


def columns(number: int) -> dict[str, str | int | float | None]:
    return {
        "features": f"data{number % 4}", "scenario": "incremental:5", "label": "y",
        "head": f"head{number // 40 % 19}", "mask": "none", "preset": "paper", "lr": 0.1,
        "order": number % 8, "seed": number % 8, "subset": None,
    }  # fmt: skip


def record(number: int, source: np.random.Generator) -> Record:
    arrays = {
        "right_by_class": source.integers(0, 1000, (26, 10), dtype=np.int32),
        "right_by_task": source.integers(0, 2000, (26, 5), dtype=np.int32),
        "n_per_class": np.full(10, 1000),
        "n_per_task": np.full(5, 2000),
        "task_order": source.permutation(5),
        "norm": source.random((5, 10), dtype=np.float32),
        "bias": source.random((5, 10), dtype=np.float32),
        "repairs": source.integers(0, 100, (5, 10, 4), dtype=np.int32),
    }
    return Record(f"{number:064d}", {"state": "done", "final": source.random()}, arrays)


def main() -> None:
    source = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        start = time.perf_counter()
        with open_store(out) as store:
            store.plan({f"{n:064d}": columns(n) for n in range(RUNS)})
            for first in range(0, RUNS, BATCH):
                store.save([record(n, source) for n in range(first, first + BATCH)])
        written = time.perf_counter() - start
        size = (out / FILE).stat().st_size
        start = time.perf_counter()
        runs = load_study(out).done
        opened = time.perf_counter() - start
        table = final_accuracy(runs.filter(pl.col("features") == "data1"))
        filtered = time.perf_counter() - start - opened
        runs.write_csv(out / "runs.csv")
        exported = time.perf_counter() - start - opened - filtered
    print(f"{RUNS} runs: {size / 2**20:.0f} MiB, written in {written:.1f} s")
    print(f"opened in {opened:.2f} s, filtered to {table.height} cells in {filtered:.2f} s,")
    print(f"exported to CSV in {exported:.2f} s")


if __name__ == "__main__":
    main()
