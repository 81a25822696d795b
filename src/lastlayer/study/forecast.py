"""How long a study will take, about: counted multiplications, at the speed measured just now."""

from collections import Counter
from pathlib import Path
from time import perf_counter

import torch

from lastlayer.errors import MissingFileError
from lastlayer.features import Features
from lastlayer.results import load_study
from lastlayer.study.execute import choose_device
from lastlayer.study.group import repeats
from lastlayer.study.prepare import Prepared
from lastlayer.study.replay_forecast import Row, forecast_replay
from lastlayer.study.run import Run
from lastlayer.study.units import RULES
from lastlayer.threads import thread_count

# What a thing costs beside one multiplication in a large product, as it was measured.
STEP = 15.0  # one feature of one class of one sample in a training step
CLASSES = 8  # … which costs so many classes more, for what does not depend on them
SCORE = 4.5  # one feature of one class of one sample, scored by a head trained by gradient
PROTOTYPE = 55.0  # … scored by mean, median and slda
LEARN = 600.0  # one feature of one sample that mean, median or slda learn
NEIGHBOUR = 1.3  # one feature of one pair of stored and test samples, for knn
VOTE = 3000.0  # one feature of one test sample, for knn's answers after a task


def forecast(ready: Prepared, folder: Path, device: str = "auto") -> list[Row]:
    """Give features, scenario and preset, the runs, those not in the folder yet, and seconds.

    Of networks trained end to end, the setting takes the place of the preset.
    """
    kept = _kept(folder)
    chosen = choose_device(device)
    speed = _speed(chosen) * thread_count(chosen)
    tasks: dict[tuple[str, str], int] = {}
    rows: dict[tuple[str, str, str], Counter[str]] = {}
    for digest, run in ready.runs.items():
        data, what = ready.data[run.features], (run.features, str(run.scenario), run.preset)
        if what[:2] not in tasks:
            tasks[what[:2]] = run.scenario.build(data, order=0).n_tasks
        row = rows.setdefault(what, Counter())
        row["runs"] += 1
        if digest not in kept:
            row["left"] += 1
            row["work"] += round(cost(run, data, tasks[what[:2]], ready.labels[digest]))
    found = [(what, row["runs"], row["left"], row["work"] / speed) for what, row in rows.items()]
    return found + forecast_replay(ready.replay, ready.images, kept, chosen)


def cost(run: Run, data: Features, n_tasks: int, label: str) -> float:
    """Count the multiplications that a run costs, or as many as take as long."""
    h, n_classes, n_test = data.in_features, len(data.names[label]), len(data.test)
    n = run.subset or len(data.train)
    scored = n_test * n_classes * h * n_tasks
    if run.by_gradient:
        steps = STEP * RULES.epochs * n * repeats(run, n) * (n_classes + CLASSES) * h
        return steps + SCORE * (RULES.epochs + 1) * scored
    if run.head == "knn":
        return (NEIGHBOUR * n + VOTE * n_tasks) * n_test * h
    return PROTOTYPE * scored + LEARN * n * h


def _kept(folder: Path) -> set[str]:
    try:
        study = load_study(folder)
        return {*study.done["digest"], *study.replay.filter(state="done")["digest"]}
    except MissingFileError:
        return set()


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
