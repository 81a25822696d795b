"""Making networks end to end: those of one balance at once, and on from where they were left."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import torch
from torch import nn

from lastlayer.features.backbones.resnet20 import ResNet20
from lastlayer.study.meter import Tell
from lastlayer.study.replay_data import ReplayData
from lastlayer.study.replay_result import Stage, result_of
from lastlayer.study.replay_run import METHOD, ReplayRun
from lastlayer.study.result import Result
from lastlayer.training.replay import train_replay
from lastlayer.training.replay.learner import Network
from lastlayer.training.replay.memory import ReplayStream
from lastlayer.training.replay.trainee import TaskEnd


def backbone() -> nn.Module:
    """Give the ResNet-20 of the study, up to its features."""
    network = ResNet20(10)
    del network.fc  # one of our layers takes its place
    return network


def make_replay(
    runs: Sequence[ReplayRun],
    data: Mapping[str, ReplayData],
    folder: Path,
    device: torch.device,
    progress: Tell | None = None,
) -> Iterator[Result]:
    """Train networks, and give what came of each as soon as it is there.

    Args:
        runs: what to train.
        data: the images by the name that the runs call them.
        folder: for checkpoints. Those of a network are removed when the next result is asked for:
            by then the caller has kept its own.
        device: where to train.
        progress: called with the images trained on so far, and all there will be; what checkpoints
            hold is in neither.
    """
    tally = Tally(sum(n_images(run, data[run.features]) for run in runs), progress)

    groups: dict[object, list[ReplayRun]] = defaultdict(list)
    for run in runs:
        groups[together(run)].append(run)
    for group in groups.values():
        images = data[group[0].features]
        yield from _train(group, images, folder / _name(group[0], images), device, tally)


@dataclass
class Tally:
    """Counts images, for the time that is left."""

    left: int
    tell: Tell | None
    done: int = 0

    def train(self, images: int) -> None:
        """Count an epoch that was trained."""
        self.left, self.done = self.left - images, self.done + images
        if self.tell is not None:
            self.tell(self.done, self.done + self.left)

    def find(self, images: int) -> None:
        """Count an epoch that need not be."""
        self.left -= images


def _train(
    runs: Sequence[ReplayRun],
    data: ReplayData,
    folder: Path,
    device: torch.device,
    tally: "Tally",
) -> Iterator[Result]:
    """Train networks at once; what they have in common is that of the first."""
    stage = Stage(data, runs[0].scenario, device)
    by_network = {run.network: run for run in runs}
    ends: dict[Network, list[TaskEnd]] = defaultdict(list)
    for end in train_replay(
        stage.pool,
        stage.tasks,
        list(by_network),
        backbone,
        runs[0].rules,
        orders=[stage.order(run) for run in runs],
        folder=folder,
        on_epoch=tally.train,
        on_found=tally.find,
    ):
        ends[end.network].append(end)
        if len(ends[end.network]) == len(stage.tasks):
            yield result_of(by_network[end.network], ends.pop(end.network), stage)
            shutil.rmtree(folder / str(end.network))


def discard(runs: Iterable[ReplayRun], data: Mapping[str, ReplayData], folder: Path) -> None:
    """Remove what is left of the checkpoints of networks that are kept, and empty folders."""
    for run in runs:
        group = folder / _name(run, data[run.features])
        shutil.rmtree(group / str(run.network), ignore_errors=True)
        for left in (group, folder):
            with suppress(OSError):  # not empty, or never there
                left.rmdir()


def together(run: ReplayRun) -> object:
    """Say which networks train at once: those that have this in common."""
    return run.dataset, run.scenario, run.balance, run.rules


def n_images(run: ReplayRun, data: ReplayData) -> int:
    """Count the images that a network is trained on, in all epochs of all tasks."""
    scenario = data.scenario(run.scenario, run.order)
    y = data.train.labels[scenario.label]
    stream = ReplayStream(scenario.tasks, y, run.rules.per_class, run.balance, run.seed)
    return sum(map(len, stream.rows)) * run.rules.epochs


def _name(run: ReplayRun, data: ReplayData) -> str:
    """Name what a group has in common, for its folder: another setting has another one."""
    common = asdict(run.rules) | {"scenario": str(run.scenario), "images": data.fingerprint}
    common["method"] = METHOD
    return sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()[:16]
