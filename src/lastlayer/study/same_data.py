"""Runs on the same data, and what they share: training and test samples, and orders of them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.analysis import class_norms, data_angles, first_seen, trace_losses
from lastlayer.data import Features
from lastlayer.evaluate.pool import Pool, Schedule, Score, Vectors
from lastlayer.results.blobs import MOST
from lastlayer.scenarios import Scenario, subset
from lastlayer.study.result import Result
from lastlayer.study.run import Run

VISITS = 50_000  # samples that a gradient head sees in each epoch, where data are repeated


@dataclass(frozen=True, eq=False)
class SameData:
    """Runs that draw from one pool: of the same features, scenario, preset and subset."""

    runs: Sequence[Run]
    pool: Pool
    schedules: Sequence[Schedule]  # one for each run; equal ones are the same object
    task_orders: Sequence[tuple[int, ...]]  # one for each run
    arrived: Sequence[NDArray[np.int64]]  # one for each run: when each class first came
    n_per_class: NDArray[np.int64]  # test samples
    n_per_task: NDArray[np.int64]  # empty where test data belong to no task

    def result(self, number: int, score: Score) -> Result:
        """Assemble the result of one run."""
        return Result(
            run=self.runs[number],
            right_by_class=score.by_class.numpy(),
            right_by_task=score.by_group.numpy()[:, : len(self.n_per_task)],
            n_per_class=self.n_per_class,
            n_per_task=self.n_per_task,
            task_order=self.task_orders[number],
            arrived=self.arrived[number],
            diverged=None if score.diverged < 0 else score.diverged,
            insight=self._insight(number, score),
        )

    def _insight(self, number: int, score: Score) -> Mapping[str, NDArray[Any]]:
        """Analyse a linear head that learned several tasks; in order 0, store its weights too."""
        schedule, run = self.schedules[number], self.runs[number]
        if score.vectors is None or score.diverged >= 0 or len(schedule.tasks) == 1:
            return {}
        test_z, test_y = self.pool.test_z.cpu().numpy(), self.pool.test_y.cpu().numpy()
        whole = run.order == run.seed == 0
        return _analyse(score.vectors, test_z, test_y, self.arrived[number], whole=whole)


def _analyse(
    vectors: Vectors, z: NDArray[Any], y: NDArray[Any], learned: NDArray[Any], *, whole: bool
) -> dict[str, NDArray[Any]]:
    """Return norm and bias (T, N), and what became of test samples z (m, h) of the classes y (m,).

    ``learned`` (N,) is the task in which each class first arrived, or −1. With ``whole``, what heat
    maps need: the rows (T, N, h) and the mean angles of data to rows (T, N, N).
    """
    weight, gain, bias = vectors.weight.numpy(), vectors.gain.numpy(), vectors.bias.numpy()
    found = {
        "norm": class_norms(weight),
        "bias": bias,
        **vars(trace_losses(weight * gain[..., None], bias, z, y, learned)),
    }
    if whole:
        maps = {"weight": weight, "data_angles": data_angles(z, y, weight)}
        found |= {name: array for name, array in maps.items() if 4 * array.size <= MOST}
    # Single precision: charts need no more.
    return {
        name: array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
        for name, array in found.items()
    }


def gather(runs: Sequence[Run], data: Features, device: torch.device) -> SameData:
    """Bring the data of runs that share them to the device, and lay out their schedules."""
    first = runs[0].scenario.build(data, order=0)
    y, test_y = data.train.labels[first.label], data.test.labels[first.label]
    _warn_of_untrained_classes(first, data)
    sizes = [len(rows) for rows in first.test_tasks or ()]
    pool = Pool(
        data.train.z, y, data.test.z, test_y, first.n_classes, _test_task(first, len(test_y))
    )
    distinct = {(run.order, run.seed): run for run in runs}
    made = {key: _schedule(run, data) for key, run in distinct.items()}
    came = {
        key: first_seen([y[rows].numpy() for rows in schedule.tasks], first.n_classes)
        for key, (schedule, _) in made.items()
    }
    of_runs = [made[run.order, run.seed] for run in runs]
    return SameData(
        runs=runs,
        pool=pool.to(device),
        schedules=[schedule for schedule, _ in of_runs],
        task_orders=[order for _, order in of_runs],
        arrived=[came[run.order, run.seed] for run in runs],
        n_per_class=test_y.bincount(minlength=first.n_classes).numpy(),
        n_per_task=np.array(sizes, dtype=np.int64),
    )


def repeats(run: Run, n: int) -> int:
    """Return how often a gradient head goes through its ``n`` samples in each epoch.

    The paper repeats subsets, and "exact" any small data, because five steps teach such a head
    nothing.
    """
    return max(VISITS // n, 1) if run.subset is not None or run.preset == "exact" else 1


def _schedule(run: Run, data: Features) -> tuple[Schedule, tuple[int, ...]]:
    if run.subset is None:
        scenario = run.scenario.build(data, run.order)
    else:
        scenario = subset(data, run.subset, run.seed, label=run.scenario.label)
    n = sum(len(rows) for rows in scenario.tasks)
    return Schedule(scenario.tasks, run.seed, repeats(run, n)), scenario.order


def _test_task(scenario: Scenario, n: int) -> Tensor | None:
    """Number the test samples by task; those of no task get the number after the last."""
    if scenario.test_tasks is None:
        return None
    task = torch.full((n,), scenario.n_tasks)
    for number, rows in enumerate(scenario.test_tasks):
        task[rows] = number
    return task


def _warn_of_untrained_classes(scenario: Scenario, data: Features) -> None:
    train, test = (split.labels[scenario.label] for split in (data.train, data.test))
    trained = train[torch.cat(scenario.tasks)].unique()
    missing = [data.names[scenario.label][c] for c in test.unique() if c not in trained]
    if missing:
        warnings.warn(
            f"the test data have classes of '{scenario.label}' without training data, "
            f"{', '.join(missing)}: no head can know them",
            stacklevel=2,
        )
