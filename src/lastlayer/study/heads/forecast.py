"""Roughly how long runs of heads will take: multiplications, at a speed measured just now."""

from collections import Counter
from collections.abc import Iterable, Mapping
from time import perf_counter

import torch

from lastlayer.catalogue import HEADS, WIDTH
from lastlayer.errors import LastLayerError
from lastlayer.features import Features
from lastlayer.heads import options_of
from lastlayer.names import look_up
from lastlayer.scenarios import Scenario
from lastlayer.study.heads.group import repeats
from lastlayer.study.heads.run import Run
from lastlayer.study.heads.units import RULES
from lastlayer.study.run import Forecast
from lastlayer.threads import thread_count
from lastlayer.training.feed import asked_after
from lastlayer.training.fleet import epochs_scored

# What a thing costs beside one multiplication in a large product, as it was measured.
STEP = 9.0  # one feature of one class of one sample in a training step
CLASSES = 8  # … which costs this many classes more, for what does not depend on them
SCORE = 3.5  # one feature of one class of one sample, scored by a head trained by gradient
TRACE = 6.5  # … and looked at again after a task, for what became of it
PROTOTYPE = 55.0  # … scored by a head that learns once and is linear
LEARN = 600.0  # one feature of one sample that such a head learns
NEIGHBOUR = 1.3  # one feature of one pair of stored and test samples, where samples are compared
VOTE = 3000.0  # one feature of one test sample, for the answers of such a head after a task
WIDE = 1.4  # one pair of mapped features of one sample that a head behind a map learns
MAP = 4.0  # one feature of one mapped feature of one test sample
READ = 3.0  # one mapped feature of one class of one test sample


def forecast_heads(
    runs: Mapping[str, Run], data: Mapping[str, Features], kept: set[str], device: torch.device
) -> list[Forecast]:
    """Return a row for each features, scenario and preset."""
    rows: dict[tuple[str, str, str], Counter[str]] = {}
    costs = costs_of(runs.values(), data)
    for digest, run in runs.items():
        row = rows.setdefault((run.features, str(run.scenario), run.preset), Counter())
        row["runs"] += 1
        if digest not in kept:
            row["left"] += 1
            row["work"] += costs[run]
    speed = _speed(device) * thread_count(device) if rows else 1.0
    return [
        Forecast(*what, row["runs"], row["left"], row["work"] / speed) for what, row in rows.items()
    ]


def costs_of(runs: Iterable[Run], data: Mapping[str, Features]) -> dict[Run, int]:
    """Return the cost of each run; 0 where its stream cannot be made, which its run will say."""
    scenarios: dict[object, Scenario | None] = {}
    costs = {}
    for run in runs:
        stream = run.features, run.scenario
        if stream not in scenarios:
            scenarios[stream] = _scenario(run, data)
        made = scenarios[stream]
        costs[run] = 0 if made is None else round(cost(run, data[run.features], made))
    return costs


def _scenario(run: Run, data: Mapping[str, Features]) -> Scenario | None:
    try:
        return run.scenario.build(look_up(run.features, data, "features"), order=0)
    except LastLayerError:
        return None


def cost(run: Run, data: Features, scenario: Scenario) -> float:
    """Estimate the cost of a run, in multiplications."""
    h, n_classes, n_test = data.in_features, scenario.n_classes, len(data.test)
    n, n_tasks = run.subset or len(data.train), scenario.n_tasks
    once = n_test * n_classes * h
    card = HEADS[run.head]
    if card.by_gradient:
        steps = STEP * RULES.epochs * n * repeats(run, n) * (n_classes + CLASSES) * h
        points = n_tasks * epochs_scored(n_tasks, RULES.epochs) + 1
        return steps + (SCORE * points + TRACE * n_tasks) * once
    if card.abilities.keeps_samples and not card.abilities.linear:
        return (NEIGHBOUR * n + VOTE * n_tasks) * n_test * h
    answers = len(asked_after(run.head, h, n_classes, n_tasks))
    solved = card.refresh(h, n_classes) * answers
    if "map" in options_of(run.head):
        read = n_test * WIDTH * (MAP * h + READ * n_classes * answers)
        return WIDE * n * WIDTH**2 + solved + read
    return PROTOTYPE * once * answers + LEARN * n * h + solved


def _speed(device: torch.device) -> float:
    """Measure multiplications a second, of one core or of the GPU."""
    a, b = (torch.rand(512, 512, device=device) for _ in "ab")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        float((a @ b)[0, 0])  # the first product sets things up
        start = perf_counter()
        for _ in range(20):
            c = a @ b
        float(c[0, 0])  # waits for a GPU
        return 20 * 512**3 / (perf_counter() - start)
    finally:
        torch.set_num_threads(before)
