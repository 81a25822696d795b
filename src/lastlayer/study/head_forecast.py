"""Roughly how long runs of heads will take: multiplications, at a speed measured just now."""

from collections import Counter
from collections.abc import Iterable, Mapping

import torch

from lastlayer.core.names import look_up
from lastlayer.core.threads import thread_count
from lastlayer.data import Features
from lastlayer.errors import LastLayerError
from lastlayer.evaluate import costs
from lastlayer.evaluate.fleet import epochs_scored
from lastlayer.evaluate.one_pass import asked_after
from lastlayer.scenarios import Scenario
from lastlayer.study.head_run import Run
from lastlayer.study.run import Forecast
from lastlayer.study.run_group import repeats
from lastlayer.study.units import RULES


def forecast_heads(
    runs: Mapping[str, Run], data: Mapping[str, Features], kept: set[str], device: torch.device
) -> list[Forecast]:
    """Return a row for each features, scenario and preset."""
    rows: dict[tuple[str, str, str], Counter[str]] = {}
    work = costs_of(runs.values(), data)
    for digest, run in runs.items():
        row = rows.setdefault((run.features, str(run.scenario), run.preset), Counter())
        row["runs"] += 1
        if digest not in kept:
            row["left"] += 1
            row["work"] += work[run]
    speed = costs.measured_speed(device) * thread_count(device) if rows else 1.0
    return [
        Forecast(*what, row["runs"], row["left"], row["work"] / speed) for what, row in rows.items()
    ]


def costs_of(runs: Iterable[Run], data: Mapping[str, Features]) -> dict[Run, int]:
    """Return the cost of each run; 0 where its stream cannot be made, which its run will say."""
    scenarios: dict[object, Scenario | None] = {}
    found = {}
    for run in runs:
        stream = run.features, run.scenario
        if stream not in scenarios:
            scenarios[stream] = _scenario(run, data)
        made = scenarios[stream]
        found[run] = 0 if made is None else round(cost(run, data[run.features], made))
    return found


def _scenario(run: Run, data: Mapping[str, Features]) -> Scenario | None:
    try:
        return run.scenario.build(look_up(run.features, data, "features"), order=0)
    except LastLayerError:
        return None


def cost(run: Run, data: Features, scenario: Scenario) -> float:
    """Estimate the cost of a run, in multiplications."""
    sizes = data.in_features, scenario.n_classes
    n, n_tasks = run.subset or len(data.train), scenario.n_tasks
    answers = len(asked_after(run.head, *sizes, n_tasks, len(data.train)))
    if run.by_gradient:
        answers = n_tasks * epochs_scored(n_tasks, RULES.epochs) + 1
    visits = RULES.epochs * n * repeats(run, n)
    test = len(data.test)
    return costs.cost(run.head, *sizes, n, test, visits=visits, answers=answers, traced=n_tasks)
