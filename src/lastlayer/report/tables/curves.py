"""Accuracy while a stream is learned: after each epoch, mean and deviation over orders (Fig. 4)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import accuracy_since_learned, share, share_of_all
from lastlayer.report.tables.select import HEAD, STREAM, in_order, streams
from lastlayer.results import Study

Floats = NDArray[np.float64]
MOST = 130  # points of a curve; with more, only the ends of tasks are kept
WHAT = (*STREAM, "kind", *HEAD, "name")
SCHEMA = dict.fromkeys(WHAT, pl.String) | {
    "n_tasks": pl.Int64,
    "task": pl.Int64,  # tasks learned wholly by then
    "epoch": pl.Int64,  # epochs of the task after them
    "learned": pl.Float64,  # both, in tasks
    "mean": pl.Float64,
    "deviation": pl.Float64,
    "runs": pl.Int64,
}


def curves(study: Study) -> pl.DataFrame:
    """Give the accuracy on the whole test set before training and after each epoch."""
    runs = streams(study).filter(pl.col("diverged").is_null())
    right, sizes = (study.arrays(name, runs) for name in ("right_by_class", "n_per_class"))
    found = {d: share_of_all(right[d], sizes[d]) for d in right}
    return _table(runs, found, skip=0)


def first_task(study: Study) -> pl.DataFrame:
    """Give the accuracy on the first task since it was learned, in lifelong streams (appendix)."""
    runs = streams(study).filter(pl.col("diverged").is_null(), kind="lifelong")
    arrays = (study.arrays(name, runs) for name in ("right_by_task", "n_per_task", "task_order"))
    right, sizes, orders = arrays
    found = {
        digest: accuracy_since_learned(share(right[digest], sizes[digest]), order.tolist())
        for digest, order in orders.items()
        if len(sizes[digest])  # else no test data belong to a task
    }
    return _table(runs, found, skip=1)


def _table(runs: pl.DataFrame, found: Mapping[str, NDArray[Any]], skip: int) -> pl.DataFrame:
    runs = runs.filter(pl.col("digest").is_in(list(found)))
    rows = [
        row
        for what, part in runs.group_by(*WHAT, "n_tasks", "epochs")
        for row in _rows(what, np.stack([found[digest] for digest in part["digest"]]), skip)
    ]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return in_order(table, "kind", *STREAM, *HEAD, "learned")


def _rows(what: tuple[Any, ...], accuracy: Floats, skip: int) -> Iterator[tuple[Any, ...]]:
    *names, n_tasks, epochs = what
    step = 1 if n_tasks * epochs < MOST else epochs
    for column in range(0, accuracy.shape[1], step):
        known = accuracy[~np.isnan(accuracy[:, column]), column] * 100
        task, epoch = divmod(column + skip * epochs, epochs)
        mean = known.mean() if len(known) else None
        spread = known.std() if len(known) > 1 else None
        yield (*names, n_tasks, task, epoch, task + epoch / epochs, mean, spread, len(known))
