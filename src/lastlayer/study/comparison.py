"""Comparing heads on a stream of data, in several orders of its tasks."""

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from lastlayer.catalogue import HEADS, all_heads, split_name
from lastlayer.errors import DataError, OptionError
from lastlayer.features import Features
from lastlayer.heads.head import Preset
from lastlayer.study.execute import execute
from lastlayer.study.progress import bar
from lastlayer.study.ranking import Bound, rank
from lastlayer.study.result import Failure, Result
from lastlayer.study.run import Run
from lastlayer.study.scenario_spec import ScenarioSpec


def compare(
    data: Features,
    scenario: str | ScenarioSpec,
    heads: Sequence[str] | None = None,
    orders: Iterable[int] = range(8),
    *,
    preset: Preset = "exact",
    lr: float | None = None,
    device: str = "auto",
    progress: bool = False,
) -> pl.DataFrame:
    """Train heads on a scenario, and measure them on the whole test set after each epoch.

    Args:
        data: training and test features.
        scenario: a name ("cifar10"), or "incremental:5", "lifelong:session", "mixed:fine/coarse".
        heads: their names, with the mask ("cosine+single"); None: all that there are.
        orders: seeds of the order of tasks; each is the seed of the training too, as in the paper.
        preset: "exact" or "paper".
        lr: the learning rate of all heads trained by gradient; None: each head's own.
        device: "auto", "cpu" or "cuda".
        progress: whether to draw a progress bar.

    Returns:
        Columns head, mask, order, task, epoch, accuracy (0 to 1). Task 0, epoch 0 is before
        training; accuracy is null where a head could not predict yet, or has diverged.

    >>> import lastlayer as ll
    >>> table = ll.compare(ll.load_features("cifar10"), "cifar10", ["mean", "slda"], orders=[0])
    >>> table.tail(1).select("head", "task", "epoch", pl.col("accuracy").round(3)).rows()
    [('slda', 4, 5, 0.669)]
    """
    seeds = list(orders)
    runs = [
        _run(_spec(scenario), head, preset, lr, order)
        for head in dict.fromkeys(all_heads() if heads is None else heads)
        for order in seeds
    ]
    if not runs:
        raise OptionError("expected at least one head and one order to compare, got none")
    return pl.concat([_rows(result) for result in _results(runs, data, device, progress)])


def upper_bound(
    data: Features,
    scenario: str | ScenarioSpec,
    *,
    preset: Preset = "exact",
    lr: float | None = None,
    device: str = "auto",
    progress: bool = False,
) -> Bound:
    """Train every head without a mask on everything at once, and give the best.

    No stream can be expected to teach more. The arguments are those of ``compare``.
    """
    label = _spec(scenario).build(data, order=0).label
    spec = ScenarioSpec("iid", label=label)
    runs = [_run(spec, head, preset, lr, order=0) for head in HEADS]
    results = _results(runs, data, device, progress)
    best = rank(pl.concat(map(_rows, results))).row(0, named=True)
    return Bound(best["head"], best["accuracy"])


def _spec(scenario: str | ScenarioSpec) -> ScenarioSpec:
    return ScenarioSpec.parse(scenario) if isinstance(scenario, str) else scenario


def _run(spec: ScenarioSpec, name: str, preset: Preset, lr: float | None, order: int) -> Run:
    head, mask = split_name(name)
    rate = lr if HEADS[head].by_gradient else None
    return Run("data", spec, head, mask, preset, rate, order, seed=order)


def _results(runs: list[Run], data: Features, device: str, progress: bool) -> list[Result]:
    """Make the runs, in their order; what cannot be made is warned of, unless it is all."""
    with bar(f"{len(runs)} runs", progress) as tell:
        outcomes = list(execute(runs, {"data": data}, device=device, progress=tell))
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if len(failures) == len(runs):
        raise DataError(failures[0].message)
    for failure in failures:
        warnings.warn(f"left out: {failure.run}: {failure.message}", stacklevel=3)
    results = {o.run: o for o in outcomes if isinstance(o, Result)}
    return [results[run] for run in runs if run in results]


def _rows(result: Result) -> pl.DataFrame:
    tasks, epochs = result.n_tasks, result.epochs
    after = np.arange(tasks * epochs)
    return pl.DataFrame(
        {
            "head": result.run.head,
            "mask": result.run.mask,
            "order": result.run.order,
            "task": np.append(0, after // epochs),
            "epoch": np.append(0, after % epochs + 1),
            "accuracy": result.accuracy,
        }
    ).with_columns(pl.col("accuracy").fill_nan(None))
