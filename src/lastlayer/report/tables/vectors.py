"""The output vectors of the linear layer: norm, bias and what a task changes (Fig. 1, 2)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import bias_change, class_norms, weight_change
from lastlayer.report.tables.select import HEAD, STREAM, in_order, streams
from lastlayer.results import Study

TASK = 45  # the task that the paper's figure 2 shows, where there are as many
DIMENSIONS = 50
CLASSES = 50  # at most, those that change most
CLASS = {"class": pl.Int64, "class_name": pl.String}
WHAT = (*STREAM, "kind", *HEAD, "name")
TEXTS = dict.fromkeys(WHAT, pl.String)


def norms(study: Study) -> pl.DataFrame:
    """Give norm and bias of each class at the end, and what the last task changed; order 0."""
    runs = _order_0(study).filter(head="linear", mask="none")
    names = ("norm", "bias", "task_order", "n_per_class", "n_per_task")
    arrays = {name: study.arrays(name, runs) for name in names}
    rows: list[tuple[Any, ...]] = []
    for run in runs.filter(pl.col("digest").is_in(list(arrays["norm"]))).iter_rows(named=True):
        norm, bias, order, classes, tasks = (arrays[name][run["digest"]] for name in names)
        came = _task_of_class(classes, tasks, order) if run["kind"] == "incremental" else None
        ago = [None] * len(classes) if came is None else (len(order) - 1 - came).tolist()
        change = bias_change(bias[-2], bias[-1])
        numbers = zip(ago, *(_plain(a) for a in (norm[-1], bias[-1], change)), strict=True)
        rows += [
            (*(run[name] for name in WHAT), *named, *values)
            for named, values in zip(class_names(study, run), numbers, strict=True)
        ]
    measures = dict.fromkeys(("norm", "bias", "bias_change"), pl.Float64)
    schema = TEXTS | CLASS | {"tasks_ago": pl.Int64} | measures
    return in_order(pl.DataFrame(rows, schema=schema, orient="row"), "kind", *STREAM, "class")


def weight_changes(study: Study) -> pl.DataFrame:
    """Give what one task changes about the weight of the linear layer, with and without a mask.

    The stream is a mixed one where there is one, else an incremental one; order 0.
    """
    runs = _order_0(study).filter(
        pl.col("kind").is_in(["mixed", "incremental"]),
        pl.col("mask").is_in(["none", "single"]),
        head="linear",
    )
    weights = study.arrays("weight", runs)
    runs = runs.filter(pl.col("digest").is_in(list(weights)))
    runs = runs.filter(pl.col("kind") == pl.col("kind").max())  # "mixed" comes after
    rows = [row for run in runs.iter_rows(named=True) for row in _changes(study, run, weights)]
    schema = TEXTS | {"task": pl.Int64} | CLASS | {"dimension": pl.Int64, "change": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return in_order(table, *STREAM, "mask", "class", "dimension")


def class_names(study: Study, run: dict[str, Any]) -> list[tuple[int, str]]:
    """Give the number and the name of each class that a run learns."""
    data = study.data.get(run["features"])
    known = data.names.get(run["label"], []) if data else []
    return [(c, str(known[c]) if c < len(known) else str(c)) for c in range(run["n_classes"])]


def _changes(
    study: Study, run: dict[str, Any], weights: dict[str, NDArray[Any]]
) -> Iterator[tuple[Any, ...]]:
    weight = weights[run["digest"]]
    task = min(TASK, len(weight) - 1)
    change = weight_change(weight[task - 1], weight[task])
    most = np.sort(np.argsort(-class_norms(change), kind="stable")[:CLASSES])
    names = class_names(study, run)
    for c in most.tolist():
        for dimension, value in enumerate(change[c, :DIMENSIONS].tolist()):
            yield (*(run[name] for name in WHAT), task + 1, *names[c], dimension, value)


def _order_0(study: Study) -> pl.DataFrame:
    return streams(study).filter(order=0).unique([*STREAM, *HEAD], keep="first")


def _task_of_class(
    classes: NDArray[Any], tasks: NDArray[Any], order: NDArray[Any]
) -> NDArray[np.int64] | None:
    """Find out when each class came, from the sizes of classes and tasks; classes ascend."""
    if not len(tasks) or classes.sum() != tasks.sum():
        return None
    number = np.searchsorted(np.cumsum(tasks), np.cumsum(classes))
    return np.argsort(order)[number]


def _plain(values: NDArray[Any]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
