"""Comparing heads on a stream of data: in several orders of its tasks, ranked, and retrained."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import all_heads, card_of, split_name
from lastlayer.catalogue.scenario_cards import forms_of_scenarios
from lastlayer.core.checks import expect, flag, kind_of, whole
from lastlayer.core.devices import choose_device
from lastlayer.core.progress import bar
from lastlayer.data import Features
from lastlayer.errors import ArgumentError, DataError, OptionError
from lastlayer.evaluate.one_pass import map_rows
from lastlayer.evaluate.pool import learn_rows
from lastlayer.evaluate.softmax import retrained_accuracy
from lastlayer.heads import FeatureMap, make_head
from lastlayer.heads.head import Preset
from lastlayer.results.tables import deviation, head_name, thrift
from lastlayer.scenarios import Scenario
from lastlayer.scenarios.spec import AnyScenario, GivenScenario, ScenarioSpec
from lastlayer.study.execute import execute
from lastlayer.study.result import Failure, Result
from lastlayer.study.run import MOST_SEED, Run

MOST_ORDERS = 10_000
SOFTMAX = "softmax regression"
KERNEL = "kernel_ridge"
COLUMNS = ("head", "mask", "order", "task", "epoch", "accuracy")  # of what ``compare`` gives


def compare(
    data: Features,
    scenario: str | ScenarioSpec | Scenario,
    heads: Sequence[str] | None = None,
    orders: int | Iterable[int] = 8,
    *,
    preset: Preset = "exact",
    lr: float | None = None,
    device: str = "auto",
    progress: bool = False,
) -> pl.DataFrame:
    """Train heads on a scenario, and measure them on the whole test set after each epoch.

    Args:
        data: training and test features.
        scenario: a name ("cifar10"), a kind such as "incremental:5", "lifelong:session",
            "nested:fine/coarse" or "mixed:fine/coarse" (docs/scenarios.md), or a ``Scenario`` that
            you have made, whose tasks each order permutes.
        heads: their names, with the mask ("cosine+single"); None: all that take as many rows.
        orders: how many orders of the tasks, or their seeds: 3 is short for ``[0, 1, 2]``.
            Each also seeds the training, as in the paper; 0 leaves the tasks as they are.
        preset: "exact" or "paper".
        lr: the learning rate of all heads trained by gradient; None: each head's own.
        device: "auto", "cpu" or "cuda".
        progress: whether to draw a progress bar.

    Returns:
        Columns head, mask, order, task, epoch, accuracy (0 to 1). Task 0, epoch 0 is before
        training; accuracy is null where a head cannot predict yet, was not asked (in a stream of
        many tasks, docs/study.md), or has diverged.

    >>> import lastlayer as ll
    >>> table = ll.compare(ll.load_features("cifar10"), "cifar10", ["mean", "slda"], orders=[0])
    >>> table.tail(1).select("head", "task", "epoch", pl.col("accuracy").round(3)).rows()
    [('slda', 4, 5, 0.669)]
    """
    expect(data, Features, "data", "Features")
    flag(progress, "progress")
    spec, seeds = _spec(scenario), seeds_of(orders)
    names = all_heads(len(data.train)) if heads is None else head_names(heads)
    runs = [_run(spec, head, preset, lr, order) for head in dict.fromkeys(names) for order in seeds]
    if not runs:
        raise OptionError("there must be at least one head and one order to compare, got none")
    return pl.concat([_rows(result) for result in _results(runs, data, device, progress)])


def rank(table: pl.DataFrame) -> pl.DataFrame:
    """Rank heads by their final accuracy, best first; those that diverged come last.

    Of equally good heads, the thriftiest comes first.

    Args:
        table: what ``compare`` gives.

    Returns:
        Columns head (with its mask), accuracy and deviation over the orders, and diverged: the
        number of orders in which it did.

    >>> table = pl.DataFrame({"head": "mean", "mask": "none", "order": [0, 0, 1, 1],
    ...                       "task": 0, "epoch": [0, 1, 0, 1], "accuracy": [None, 0.5, None, 1.0]})
    >>> rank(table).rows()
    [('mean', 0.75, 0.25, 0)]
    """
    expect(table, pl.DataFrame, "table", "a polars table")
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing or not table.height:
        what = f"no column {', '.join(missing)}" if missing else "no row"
        raise OptionError(f"table must have the columns {', '.join(COLUMNS)}, got {what}")
    final = table.sort("task", "epoch").group_by("head", "mask", "order").last()
    accuracy = pl.col("accuracy")
    return (
        final.sort("head", "mask", "order")
        .group_by(head_name(), maintain_order=True)
        .agg(
            accuracy.mean(),
            deviation(accuracy).alias("deviation"),
            accuracy.null_count().alias("diverged"),
        )
        .sort(
            "diverged", "accuracy", thrift(), descending=[False, True, False], maintain_order=True
        )
    )


@dataclass(frozen=True)
class Bound:
    """The accuracy of a softmax regression trained on everything at once until it converged."""

    name: str
    accuracy: float  # on the test rows, 0 to 1


def upper_bound(
    data: Features,
    scenario: str | ScenarioSpec | Scenario,
    *,
    behind: str | None = None,
    device: str = "auto",
) -> Bound:
    """Train a softmax regression on everything at once until it converges, and test it.

    Its weight decay is chosen on held-out training rows. No stream can be expected to teach a
    linear layer more; a head that is not linear in the features may reach more.

    Args:
        data: training and test features.
        scenario: as for ``compare``; it says which rows and which labels.
        behind: a head with a feature map; the regression is then trained behind the same map. Or
            "kernel_ridge", which keeps all rows and is nearly always the best of any kind: it
            takes the place of the regression.
        device: "auto", "cpu" or "cuda".
    """
    expect(data, Features, "data", "Features")
    made = _spec(scenario).build(data, order=0)
    where = choose_device(device)
    rows = torch.cat(made.tasks)
    if behind == KERNEL:
        return Bound(f"{KERNEL} of all rows", _kernel_accuracy(data, made, where, rows))
    map = None if behind is None else _map_of(behind, data, made)
    accuracy = retrained_accuracy(data, made.label, made.n_classes, where, rows, map)
    name = SOFTMAX if map is None else f"{SOFTMAX} behind the map of {behind}"
    return Bound(name, accuracy)


def _kernel_accuracy(data: Features, made: Scenario, device: torch.device, rows: Tensor) -> float:
    most = card_of(KERNEL).most_rows
    if most is not None and len(rows) > most:
        raise DataError(f"{KERNEL} takes at most {most} rows by default, and there are {len(rows)}")
    head = make_head(KERNEL, data.in_features, made.n_classes).to(device)
    learn_rows(head, data.train.z, data.train.labels[made.label], [rows])
    found = head.predict(data.test.z.float()).cpu() == data.test.labels[made.label]
    return float(found.double().mean())


def _map_of(head: str, data: Features, made: Scenario) -> FeatureMap:
    """Return the map that a head uses in all orders of these tasks."""
    found = make_head(head, data.in_features).feature_map
    if found is None:
        raise OptionError(f"behind must be a head with a feature map, got '{head}', which has none")
    return found.fit(data.train.z[map_rows(made.tasks)].float())


def seeds_of(orders: int | Iterable[int]) -> list[int]:
    """Return the seeds of some orders of tasks: a number n stands for 0…n−1.

    >>> seeds_of(3), seeds_of([0, 5])
    ([0, 1, 2], [0, 5])
    """
    if isinstance(orders, Iterable) and not isinstance(orders, str | bytes):
        return [whole(seed, "an order", 0, MOST_SEED) for seed in orders]
    return list(range(whole(orders, "orders", 1, MOST_ORDERS)))


def _spec(scenario: object) -> AnyScenario:
    """Return the scenario as a run takes it, from text, a spec or a scenario."""
    if isinstance(scenario, str):
        return ScenarioSpec.parse(scenario)
    if isinstance(scenario, Scenario):
        return GivenScenario(scenario)
    if isinstance(scenario, ScenarioSpec):
        return scenario
    raise ArgumentError(
        f"scenario must be text ({forms_of_scenarios()}, or a name), a ScenarioSpec or a "
        f"Scenario, got {kind_of(scenario)}"
    )


def head_names(heads: object) -> list[str]:
    """Return the names of heads; a single name instead of a list is refused."""
    if isinstance(heads, str) or not isinstance(heads, Iterable):
        raise ArgumentError(
            f"heads must be a list of names, such as ['slda'], got {kind_of(heads)}"
        )
    names = list(heads)
    for name in names:
        expect(name, str, "heads", "names of heads")
    return names


def _run(spec: AnyScenario, name: str, preset: Preset, lr: float | None, order: int) -> Run:
    head, mask = split_name(name)
    expect(preset, str, "preset", "'exact' or 'paper'")
    rate = lr if card_of(head).by_gradient else None
    return Run("data", spec, head, mask, preset, rate, order, seed=order)


def _results(runs: list[Run], data: Features, device: str, progress: bool) -> list[Result]:
    """Return the results of the runs, in order; warn of runs that fail, unless all of them do."""
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
