"""The i.i.d. runs of the paper's tables, over seeds."""

from collections.abc import Iterable
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from lastlayer.heads import ALL_HEADS, split_name
from lastlayer.study.result import Result
from lastlayer.study.run import Run
from lastlayer.study.scenario_spec import ScenarioSpec

Cell: TypeAlias = dict[str, Any]  # one of a table: the keys below without mean, std and seeds
SCHEMA = {
    "features": pl.String,
    "label": pl.String,
    "head": pl.String,
    "mask": pl.String,
    "lr": pl.Float64,
    "subset": pl.Int64,
    "mean": pl.Float64,
    "std": pl.Float64,
    "seeds": pl.Int64,
}


def cells_to_run(published: Iterable[Cell]) -> list[Cell]:
    """Give the published cells, and on each feature set and label all heads at their own rates.

    Args:
        published: each with features, label, head, mask, lr and subset.
    """
    published = list(published)
    sets = dict.fromkeys((cell["features"], cell["label"]) for cell in published)
    cells = [*published, *chain.from_iterable(_all_heads(*names) for names in sets)]
    distinct = {tuple(cell.values()): cell for cell in cells}
    return sorted(distinct.values(), key=_place)


def iid_runs(cells: Iterable[Cell], seeds: Iterable[int]) -> list[Run]:
    """Give a run for each cell and seed."""
    seeds = list(seeds)
    return [
        Run(
            cell["features"],
            ScenarioSpec("iid", label=cell["label"]),
            cell["head"],
            cell["mask"],
            "paper",
            cell["lr"],
            seed=seed,
            subset=cell["subset"],
        )
        for cell in cells
        for seed in seeds
    ]


def _all_heads(features: str, label: str) -> list[Cell]:
    spec = ScenarioSpec("iid", label=label)
    runs = [Run(features, spec, *split_name(name)) for name in ALL_HEADS]
    # The text says 0.1 for this one too, but its published numbers are those of 0.01.
    return [_cell(run) for run in (*runs, Run(features, spec, "weight_norm", "single", lr=0.01))]


def summarise(results: Iterable[Result]) -> pl.DataFrame:
    """Give mean and deviation over seeds of the final accuracy, in percent, as the paper does."""
    by_cell: dict[tuple[Any, ...], list[float]] = {}
    for result in results:
        by_cell.setdefault(tuple(_cell(result.run).values()), []).append(100 * result.final)
    rows = [
        (*cell, float(np.mean(finals)), float(np.std(finals)), len(finals))
        for cell, finals in by_cell.items()
    ]
    rows.sort(key=lambda row: _place(dict(zip(SCHEMA, row, strict=True))))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _place(cell: Cell) -> tuple[Any, ...]:
    """Order cells as the heads are listed, the largest learning rate first."""
    name = cell["head"] if cell["mask"] == "none" else f"{cell['head']}+{cell['mask']}"
    return cell["features"], cell["label"], ALL_HEADS.index(name), -(cell["lr"] or 0)


def _cell(run: Run) -> Cell:
    label = run.scenario.label
    what = {"features": run.features, "label": label, "head": run.head, "mask": run.mask}
    return what | {"lr": run.lr, "subset": run.subset}
