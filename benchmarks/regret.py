"""Regret: what the advised head loses on test rows to the best candidate in hindsight.

    python -m benchmarks.regret                          # every stream, 5 splits: about an hour
    python -m benchmarks.regret --streams digits --splits 2 --shares 1.0
    python -m benchmarks.regret --table                  # the table of what is there

A split draws its share of the training rows, and for sets without a test split of their own the
test rows too; the head is advised on those rows alone, and then every candidate learns all of them
and is tested. Rows are added to results/regret/splits.csv; what is there already is not made again.
"""

import argparse
import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
import torch
from scipy import stats
from sklearn import datasets

import lastlayer as ll
from lastlayer.advice.choosing import Scores, choose
from lastlayer.advice.course import Course, lay_out
from lastlayer.advice.judging import judge
from lastlayer.advice.needs import Needs
from lastlayer.advice.split import Split, hold_out

OUT = Path("results/regret")
COLUMNS = (
    "stream", "share", "split", "rows", "advised", "accuracy", "best", "best_accuracy", "regret",
    "low", "high", "within_noise", "seconds",
)  # fmt: skip
Drawn = Callable[[int], ll.Features]


def _bundled(name: str) -> Drawn:
    return lambda seed: ll.load_features(name)


def _toy(load: Callable[[], Any]) -> Drawn:
    """Draw a quarter of a set of scikit-learn's as test rows."""

    def draw(seed: int) -> ll.Features:
        found = load()
        z = torch.from_numpy(found.data).float()
        return ll.Features.from_arrays(z, found.target, test=0.25, seed=seed)

    return draw


STREAMS: dict[str, tuple[Drawn, str]] = {
    "cifar10": (_bundled("cifar10"), "cifar10"),
    "cifar100": (_bundled("cifar100"), "cifar100"),
    "cifar100_lifelong": (_bundled("cifar100"), "cifar100_lifelong"),
    "cifar100_mix": (_bundled("cifar100"), "cifar100_mix"),
    "cifar10_iid": (_bundled("cifar10"), "iid"),
    "digits": (_toy(datasets.load_digits), "incremental:5"),
    "digits_iid": (_toy(datasets.load_digits), "iid"),
    "breast_cancer": (_toy(datasets.load_breast_cancer), "incremental:2"),
    "wine": (_toy(datasets.load_wine), "incremental:3"),
}


def regret(stream: str, share: float, split: int) -> dict[str, Any]:
    """Advise on a share of the training rows, test all candidates, and compare."""
    draw, scenario = STREAMS[stream]
    course = _thinned(lay_out(draw(split), scenario), share, split)
    began = perf_counter()
    judgement = judge(course, seed=split)
    choice = choose(course, judgement, Needs(), split)
    seconds = perf_counter() - began
    tested = _tested(course, {name: v.lr for name, v in judgement.verdicts.items()})
    best = max(tested.names, key=tested.of)
    lost = tested.difference(best, choice.head)
    return {
        "stream": stream,
        "share": share,
        "split": split,
        "rows": len(course.rows),
        "advised": choice.head,
        "accuracy": tested.of(choice.head),
        "best": best,
        "best_accuracy": tested.of(best),
        "regret": lost.value,
        "low": lost.low,
        "high": lost.high,
        "within_noise": best == choice.head or best in choice.level or best in choice.twins,
        "seconds": round(seconds, 1),
    }


def _thinned(course: Course, share: float, seed: int) -> Course:
    """Keep a share of each class in each task."""
    if share == 1:
        return course
    task, rows = course.task_of, course.rows
    kept = torch.zeros(len(course.y), dtype=torch.bool)
    picked = hold_out(course.y[rows], task[rows], None, part=share, turn=0, seed=seed)
    kept[rows[picked]] = True
    return replace(
        course, tasks=tuple(part[kept[part]] for part in course.tasks if kept[part].any())
    )


def _tested(course: Course, rates: dict[str, float | None]) -> Scores:
    n, m = len(course.y), len(course.test_y)
    whole = replace(
        course, z=torch.cat([course.z, course.test_z]), y=torch.cat([course.y, course.test_y])
    )
    split = Split(course.tasks, torch.arange(n, n + m))
    found = judge(whole, list(rates), splits=[split], rates=rates)
    right = {
        name: (verdict.answers[0] == course.test_y).numpy().astype(float)
        for name, verdict in found.verdicts.items()
    }
    return Scores(right, np.arange(m))


def table(splits: pl.DataFrame) -> pl.DataFrame:
    """Average over splits, in points, with the 95 % interval of the mean."""
    points = 100 * pl.col("regret")
    mean = splits.group_by("share", "stream", maintain_order=True).agg(
        points.mean().alias("regret"),
        points.std().alias("deviation"),
        pl.len().alias("splits"),
        (100 * pl.col("accuracy")).mean().alias("accuracy"),
        (100 * pl.col("best_accuracy")).mean().alias("best_accuracy"),
        pl.col("advised").mode().sort().first(),
        pl.col("best").mode().sort().first(),
        pl.col("within_noise").mean(),
    )
    n = mean["splits"].to_numpy()
    reach = stats.t.ppf(0.975, np.maximum(n - 1, 1)) * mean["deviation"].fill_null(0) / np.sqrt(n)
    return mean.with_columns(pl.Series("plus_minus", reach)).sort(
        "share", "stream", descending=[True, False]
    )


def main() -> None:
    """Make what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", nargs="*", default=list(STREAMS))
    parser.add_argument("--shares", nargs="*", type=float, default=[1.0, 0.1, 0.01])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / "splits.csv"
    done = set(pl.read_csv(file).select("stream", "share", "split").rows()) if file.exists() else ()
    jobs = [
        (stream, share, split)
        for split in range(asked.splits)
        for share in asked.shares
        for stream in asked.streams
        if share == 1
        or stream.startswith("cifar")
        or (stream.startswith("digits") and share > 0.05)
    ]
    for job in () if asked.table else jobs:
        if job in done:
            continue
        row = regret(*job)
        new = not file.exists()
        with file.open("a", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            if new:
                writer.writeheader()
            writer.writerow(row)
        print(row, flush=True)
    found = table(pl.read_csv(file))
    found.write_csv(OUT / "regret.csv", float_precision=3)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200):
        print(found)


if __name__ == "__main__":
    main()
