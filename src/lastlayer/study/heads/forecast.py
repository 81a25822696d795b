"""Roughly how long runs of heads will take: multiplications, at a speed measured just now."""

import math
from collections import Counter
from collections.abc import Mapping
from time import perf_counter

import torch

from lastlayer.catalogue import HEADS
from lastlayer.features import Features
from lastlayer.scenarios import Scenario
from lastlayer.study.heads.group import repeats
from lastlayer.study.heads.run import Run
from lastlayer.study.heads.units import RULES
from lastlayer.study.run import Forecast
from lastlayer.threads import thread_count

# What a thing costs beside one multiplication in a large product, as it was measured.
STEP = 15.0  # one feature of one class of one sample in a training step
CLASSES = 8  # … which costs this many classes more, for what does not depend on them
SCORE = 4.5  # one feature of one class of one sample, scored by a head trained by gradient
PROTOTYPE = 55.0  # … scored by a head that learns once and is linear
LEARN = 600.0  # one feature of one sample that such a head learns
NEIGHBOUR = 1.3  # one feature of one pair of stored and test samples, where samples are compared
VOTE = 3000.0  # one feature of one test sample, for the answers of such a head after a task


def forecast_heads(
    runs: Mapping[str, Run], data: Mapping[str, Features], kept: set[str], device: torch.device
) -> list[Forecast]:
    """Return a row for each features, scenario and preset."""
    scenarios: dict[object, Scenario] = {}
    rows: dict[tuple[str, str, str], Counter[str]] = {}
    for digest, run in runs.items():
        known, stream = data[run.features], (run.features, run.scenario)
        if stream not in scenarios:
            scenarios[stream] = run.scenario.build(known, order=0)
        row = rows.setdefault((run.features, str(run.scenario), run.preset), Counter())
        row["runs"] += 1
        if digest not in kept:
            row["left"] += 1
            row["work"] += round(cost(run, known, scenarios[stream]))
    speed = _speed(device) * thread_count(device) if rows else 1.0
    return [
        Forecast(*what, row["runs"], row["left"], row["work"] / speed) for what, row in rows.items()
    ]


def cost(run: Run, data: Features, scenario: Scenario) -> float:
    """Estimate the cost of a run, in multiplications."""
    h, n_classes, n_test = data.in_features, scenario.n_classes, len(data.test)
    n = run.subset or len(data.train)
    scored = n_test * n_classes * h * scenario.n_tasks
    card = HEADS[run.head]
    if card.by_gradient:
        steps = STEP * RULES.epochs * n * repeats(run, n) * (n_classes + CLASSES) * h
        return steps + SCORE * (RULES.epochs + 1) * scored
    if card.abilities.keeps_samples and not card.abilities.linear:
        return (NEIGHBOUR * n + VOTE * scenario.n_tasks) * n_test * h
    wider = max(1.0, math.isqrt(card.size(h, 1, 0) // 8) / h)  # behind a random map: its width
    return wider * (PROTOTYPE * scored + LEARN * n * h)


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
