"""The runs behind the paper's tables, and their summary."""

import numpy as np
import polars as pl

from lastlayer.heads import ALL_HEADS
from lastlayer.study import Result, Run, ScenarioSpec
from lastlayer.study.reproduction import cells_to_run, iid_runs, summarise

CELL = {"features": "small", "label": "y", "head": "linear", "mask": "none"}
CELL |= {"lr": 0.1, "subset": None}


def test_all_heads_are_run_wherever_something_was_published() -> None:
    cells = cells_to_run([CELL, CELL])
    runs = iid_runs(cells, seeds=range(2))
    assert len(cells) == 19 + 2  # linear at 0.1, and weight_norm+single at 0.01 too
    assert len(runs) == len(set(runs)) == 2 * len(cells)
    assert {run.head_name for run in runs} == set(ALL_HEADS)
    rates = {run.lr for run in runs if run.head_name == "linear"}
    assert rates == {0.1, 0.01}
    assert {run.preset for run in runs} == {"paper"}
    assert {str(run.scenario) for run in runs} == {"iid/y"}


def test_the_summary_is_mean_and_deviation_over_seeds() -> None:
    run = Run("small", ScenarioSpec("iid", label="y"), "knn", preset="paper")
    counts = (np.array([[0], [5]]), np.array([[0], [7]]))
    n, none = np.array([10]), np.zeros((2, 0), dtype=int)
    results = [Result(run, right, none, n, none[0], (0,)) for right in counts]
    (row,) = summarise(results).iter_rows(named=True)
    assert round(row["mean"], 9) == 60
    assert round(row["std"], 9) == 10
    assert (row["features"], row["label"], row["head"], row["seeds"]) == ("small", "y", "knn", 2)


def test_an_empty_summary_has_its_columns() -> None:
    assert summarise([]).schema["lr"] == pl.Float64
