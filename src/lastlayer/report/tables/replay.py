"""Networks trained end to end with replay: accuracy, cost, causes of loss, and drift (Fig. 7)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import LOSS_PARTS, after_each_task, share
from lastlayer.report.tables.select import HEAD, STREAM, in_order, percent, with_names
from lastlayer.results import Study
from lastlayer.results.tables import deviation

MEASURES = {"angle": 1, "norm": 100, "along": 100}  # as they are stored → degrees and percent
PLACE = (*STREAM, "stream", "setting", "balance", *HEAD, "name")
SCHEMA = {
    **dict.fromkeys(PLACE, pl.String),
    "balance": pl.Float64,
    "measure": pl.String,
    "tasks_ago": pl.Int64,
    "value": pl.Float64,
}


def replay(study: Study) -> pl.DataFrame:
    """Give accuracy, images and what was lost, in percent, for each network and replay balance.

    Learned is the accuracy on the classes of a task right after it, mean over tasks. What was lost
    to a cause is in percent of the test set, its share in percent of all that was lost: each is
    found network by network, and then averaged.
    """
    runs = _networks(study)
    learned = _learned(study, runs)
    own = pl.col("digest").replace_strict(learned, default=None, return_dtype=pl.Float64)
    sizes = {name: data.n_test for name, data in study.data.items()}
    size = pl.col("features").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    lost = pl.col("lost") * 100 / size
    table = runs.group_by(PLACE).agg(
        *percent("final"),
        pl.col("diverged").count().cast(pl.Int64),
        pl.col("images").cast(pl.Float64).mean(),
        own.fill_nan(None).mean().alias("learned"),
        (pl.col("forgetting") * 100).mean(),
        lost.mean(),
        *((_share(cause) * lost).mean().alias(f"lost_to_{cause}") for cause in LOSS_PARTS),
        *((pl.col(f"lost_share_{cause}") * 100).mean() for cause in LOSS_PARTS),
    )
    return in_order(table, "stream", "setting", "balance", *HEAD)


def projection_drift(study: Study) -> pl.DataFrame:
    """Give how far features have moved since their class was learned, over seeds."""
    runs = _networks(study)
    arrays = {name: study.arrays(f"drift_{name}", runs) for name in MEASURES}
    rows = [
        (*(run[name] for name in PLACE), measure, *point)
        for run in runs.iter_rows(named=True)
        for measure, scale in MEASURES.items()
        if run["digest"] in arrays[measure]
        for point in since_learned(arrays[measure][run["digest"]] * scale)
    ]
    long = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    table = long.group_by(*PLACE, "measure", "tasks_ago").agg(
        pl.col("value").mean().alias("mean"),
        deviation(pl.col("value")).alias("deviation"),
        pl.len().cast(pl.Int64).alias("runs"),
    )
    return in_order(table, "stream", "setting", "balance", "measure", *HEAD, "tasks_ago")


def _learned(study: Study, runs: pl.DataFrame) -> dict[str, float]:
    """Give in percent how well each network knew its tasks right after them, on average."""
    right, sizes, orders = (
        study.arrays(name, runs) for name in ("right_by_task", "n_per_task", "task_order")
    )
    learned = {}
    for digest, n_per_task in sizes.items():
        if len(n_per_task):  # else test samples belong to no task
            by_task = share(right[digest], n_per_task)
            matrix = after_each_task(by_task, orders[digest].tolist())
            learned[digest] = float(100 * np.diag(matrix).mean())
    return learned


def _share(cause: str) -> pl.Expr:
    """Give the share of a cause; nothing where nothing was lost and there is none."""
    return pl.when(pl.col("lost") == 0).then(0.0).otherwise(f"lost_share_{cause}")


def _networks(study: Study) -> pl.DataFrame:
    """Give the finished networks, each with its setting in words."""
    setting = pl.format(
        "{} epochs a task, {} remembered of a class, batch {}, {} at {}",
        "epochs", "per_class", "batch_size", "optimizer", "lr",
    )  # fmt: skip
    return with_names(study.replay.filter(state="done")).with_columns(setting.alias("setting"))


def since_learned(drift: NDArray[Any]) -> Iterator[tuple[int, float]]:
    """Average (T, classes) over classes, by the number of tasks since each was learned."""
    known = ~np.isnan(drift)
    ago = np.arange(len(drift))[:, None] - known.argmax(axis=0)
    for tasks in range(len(drift)):
        values = drift[known & (ago == tasks)]
        if len(values):
            yield tasks, float(values.mean())
