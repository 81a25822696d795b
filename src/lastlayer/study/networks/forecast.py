"""Roughly how long networks will train: their images, at a rate measured over a few steps."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from time import perf_counter

import torch

from lastlayer.study.networks import make
from lastlayer.study.networks.data import ImageData
from lastlayer.study.networks.run import NetworkRun, setting_of
from lastlayer.study.run import Forecast
from lastlayer.training.replay.image_pool import make_image_pool
from lastlayer.training.replay.learner import Learner, Network
from lastlayer.training.replay.ways import way_for

STEPS = 10  # timed of each network


def forecast_networks(
    runs: Mapping[str, NetworkRun],
    data: Mapping[str, ImageData],
    kept: set[str],
    device: torch.device,
) -> list[Forecast]:
    """Return a row for each features, scenario and setting."""
    count = Counter(map(_what, runs.values()))
    left: dict[tuple[str, str, str], list[NetworkRun]] = {what: [] for what in count}
    for digest, run in runs.items():
        if digest not in kept:
            left[_what(run)].append(run)
    groups: dict[object, list[NetworkRun]] = defaultdict(list)
    for run in (run for group in left.values() for run in group):
        groups[make.together(run)].append(run)
    rates = {which: _rate(group[0], len(group), device) for which, group in groups.items()}
    return [
        Forecast(
            *what,
            count[what],
            len(group),
            sum(
                make.n_images(run, data[run.features]) / rates[make.together(run)] for run in group
            ),
        )
        for what, group in left.items()
    ]


def _what(run: NetworkRun) -> tuple[str, str, str]:
    return run.features, str(run.scenario), setting_of(run.balance, run.rules, run.options)


def _rate(run: NetworkRun, n: int, device: torch.device) -> float:
    """Measure images per second; on a CPU networks train in turn, so one is enough."""
    n = n if device.type == "cuda" else 1
    rules = run.rules
    size = rules.batch_size
    x = torch.zeros(size, 3, 32, 32, dtype=torch.uint8)
    pool = make_image_pool(x, torch.arange(size) % 10, x, torch.arange(size) % 10).to(device)
    order = torch.arange(size).repeat(STEPS)
    learners = [
        Learner(
            Network(run.head, run.mask, 1.0, seed),
            pool,
            make.backbone,
            rules.optimizer,
            rules.lr,
            run.options,
        )
        for seed in range(n)
    ]
    way = way_for(learners, size, len(order), run.options)
    way.take_epoch(learners, [order] * n)  # sets things up
    start = perf_counter()
    way.take_epoch(learners, [order] * n)
    float(learners[0].layer.weight.detach().sum())  # waits for a GPU
    return n * len(order) / (perf_counter() - start)
