"""Training networks end to end: those of one setting at once, resumed from checkpoints."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import torch
from torch import nn

from lastlayer.features.backbones.resnet20 import ResNet20
from lastlayer.progress import Meter
from lastlayer.study.heads.execute import choose_device
from lastlayer.study.networks.data import ImageData
from lastlayer.study.networks.result import Stage, result_of
from lastlayer.study.networks.run import NetworkRun
from lastlayer.study.result import Outcome, Result
from lastlayer.study.run import Work
from lastlayer.training.replay import train_replay
from lastlayer.training.replay.learner import Network
from lastlayer.training.replay.memory import ReplayStream
from lastlayer.training.replay.trainee import TaskEnd


def backbone() -> nn.Module:
    """Return the ResNet-20 of the study, up to its features."""
    network = ResNet20(10)
    del network.fc  # one of our layers takes its place
    return network


def make_networks(work: Work[NetworkRun, ImageData]) -> Iterator[list[Outcome]]:
    """Train networks, and yield each outcome as soon as it is ready.

    A network's checkpoints are removed when the next result is asked for, because by then the
    caller has saved the last one. ``work.progress`` is called with the images trained on so far and
    the total; neither includes what checkpoints hold.
    """
    device, left = choose_device(work.device), [run for run in work.runs if not work.done(run)]
    meter = Meter(sum(n_images(run, work.data[run.features]) for run in left), work.progress)
    groups: dict[object, list[NetworkRun]] = defaultdict(list)
    for run in left:
        groups[together(run)].append(run)
    for group in groups.values():
        images = work.data[group[0].features]
        folder = work.folder / _name(group[0], images)
        for result in _train(group, images, folder, device, meter):
            yield [result]
    discard(work.runs, work.data, work.folder)  # of a study killed after they were kept


def _train(
    runs: Sequence[NetworkRun],
    data: ImageData,
    folder: Path,
    device: torch.device,
    meter: Meter,
) -> Iterator[Result]:
    """Train networks at once; the first one's setting is that of all."""
    stage = Stage(data, runs[0].scenario, device)
    by_network = {run.network: run for run in runs}
    ends: dict[Network, list[TaskEnd]] = defaultdict(list)
    for end in train_replay(
        stage.pool,
        stage.tasks,
        list(by_network),
        backbone,
        runs[0].rules,
        runs[0].options,
        orders=[stage.order(run) for run in runs],
        folder=folder,
        on_epoch=meter.add,
        on_found=meter.drop,
    ):
        ends[end.network].append(end)
        if len(ends[end.network]) == len(stage.tasks):
            yield result_of(by_network[end.network], ends.pop(end.network), stage)
            shutil.rmtree(folder / str(end.network))


def discard(runs: Iterable[NetworkRun], data: Mapping[str, ImageData], folder: Path) -> None:
    """Remove leftover checkpoints of networks whose results are saved, and empty folders."""
    for run in runs:
        group = folder / _name(run, data[run.features])
        shutil.rmtree(group / str(run.network), ignore_errors=True)
        for left in (group, folder):
            with suppress(OSError):  # not empty, or never there
                left.rmdir()


def together(run: NetworkRun) -> object:
    """Return a key that is equal for networks that train at once."""
    return run.dataset, run.scenario, run.rules, run.options


def n_images(run: NetworkRun, data: ImageData) -> int:
    """Count the images that a network is trained on, in all epochs of all tasks."""
    scenario = data.scenario(run.scenario, run.order)
    y = data.train.labels[scenario.label]
    stream = ReplayStream(scenario.tasks, y, run.rules.per_class, run.balance, run.seed)
    return sum(map(len, stream.rows)) * run.rules.epochs


def _name(run: NetworkRun, data: ImageData) -> str:
    """Return the name of a group's folder, which is different for every setting."""
    common = asdict(run.rules) | {"scenario": str(run.scenario), "images": data.fingerprint}
    common |= {"method": run.method, **run.options.decisive()}
    return sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()[:16]
