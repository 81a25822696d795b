"""Training networks end to end: those of one setting at once, resumed from checkpoints.

How long that will take is forecast by a few steps of each setting. A result holds right answers,
projection drift and the causes of loss.
"""

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lastlayer.analysis import class_norms, first_seen, loss_parts, projection_drift
from lastlayer.core.devices import choose_device
from lastlayer.core.progress import Meter
from lastlayer.extraction.backbones.resnet20 import ResNet20
from lastlayer.layers import LAYERS
from lastlayer.layers.modules import unit
from lastlayer.replay.study.network_run import ImageData, NetworkRun, setting_of
from lastlayer.replay.training import TaskEnd, train_replay
from lastlayer.replay.training.at_once import trainer_for
from lastlayer.replay.training.image_pool import make_image_pool
from lastlayer.replay.training.learner import Learner, Network
from lastlayer.replay.training.replay_stream import ReplayStream
from lastlayer.scenarios.spec import ScenarioSpec
from lastlayer.study.result import Outcome, Result
from lastlayer.study.run import Forecast, Work

STEPS = 10  # timed of each network


def backbone() -> nn.Module:
    """Return the ResNet-20 of the study, up to its features."""
    network = ResNet20(10)
    del network.fc  # one of our layers takes its place
    return network


def make_networks(work: Work) -> Iterator[list[Outcome]]:
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
    runs: Sequence[NetworkRun], data: ImageData, folder: Path, device: torch.device, meter: Meter
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
    scenario = run.scenario.build(data, run.order)
    y = data.train.labels[scenario.label]
    stream = ReplayStream(scenario.tasks, y, run.rules.per_class, run.balance, run.seed)
    return sum(map(len, stream.rows)) * run.rules.epochs


def _name(run: NetworkRun, data: ImageData) -> str:
    """Return the name of a group's folder, which is different for every setting."""
    common = asdict(run.rules) | {"scenario": str(run.scenario), "images": data.fingerprint}
    common |= {"method": run.method, **run.options.decisive()}
    return sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()[:16]


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
        groups[together(run)].append(run)
    rates = {which: _rate(group[0], len(group), device) for which, group in groups.items()}
    return [
        Forecast(
            *what,
            count[what],
            len(group),
            sum(n_images(run, data[run.features]) / rates[together(run)] for run in group),
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
    how = (pool, backbone, rules.optimizer, rules.lr, run.options)
    learners = [Learner(Network(run.head, run.mask, 1.0, seed), *how) for seed in range(n)]
    trainer = trainer_for(learners, size, len(order), run.options)
    trainer.take_epoch(learners, [order] * n)  # sets things up
    start = perf_counter()
    trainer.take_epoch(learners, [order] * n)
    float(learners[0].layer.weight.detach().sum())  # waits for a GPU
    return n * len(order) / (perf_counter() - start)


class Stage:
    """What networks on one data set and scenario share: images, and tasks by their number."""

    def __init__(self, data: ImageData, spec: ScenarioSpec, device: torch.device) -> None:
        self.data, self.spec = data, spec
        first = spec.build(data, order=0)
        self.tasks, self.n_classes = first.tasks, first.n_classes
        self.pool = data.pool(first.label, device)
        self.y, self.test_y = (part.cpu().numpy() for part in (self.pool.y, self.pool.test_y))
        self.classes = [np.unique(self.y[rows]) for rows in self.tasks]

    def order(self, run: NetworkRun) -> tuple[int, ...]:
        """Return the tasks in the order in which a network meets them."""
        return self.spec.build(self.data, run.order).order

    def arrived(self, run: NetworkRun) -> NDArray[np.int64]:
        """Return when each class first reached a network, as its task's position; −1: never."""
        tasks = [self.y[self.tasks[task]] for task in self.order(run)]
        return first_seen(tasks, self.n_classes)

    @property
    def apart(self) -> bool:
        """Whether each class belongs to one task, so that test samples belong to one too."""
        return len(np.unique(np.concatenate(self.classes))) == sum(map(len, self.classes))


def result_of(run: NetworkRun, ends: Sequence[TaskEnd], stage: Stage) -> Result:
    """Assemble the result of one network from the ends of its tasks, in their order."""
    right = np.concatenate([end.right.numpy() for end in ends])
    n_per_class = np.bincount(stage.test_y, minlength=stage.n_classes)
    groups = stage.classes if stage.apart else []
    by_task = (
        np.stack([right[:, c].sum(axis=1) for c in groups], axis=1) if groups else right[:, :0]
    )
    lost_numbers = right[:, 0] < 0
    by_task = np.where(lost_numbers[:, None], -1, by_task)
    return Result(
        run=run,
        right_by_class=_after_unknown(right),
        right_by_task=_after_unknown(by_task),
        n_per_class=n_per_class,
        n_per_task=np.array([n_per_class[c].sum() for c in groups], dtype=np.int64),
        task_order=stage.order(run),
        arrived=stage.arrived(run),
        diverged=int(lost_numbers.argmax()) if lost_numbers.any() else None,
        insight=_images(ends) | ({} if lost_numbers.any() else _insight(run, ends, stage)),
    )


def _after_unknown(right: NDArray[np.int64]) -> NDArray[np.int64]:
    """Put a row of −1 first: nothing is measured before training."""
    return np.concatenate([np.full_like(right[:1], -1), right])


def _images(ends: Sequence[TaskEnd]) -> dict[str, NDArray[Any]]:
    """Return how many images each epoch of each task trained on: (T, E)."""
    images = np.array([end.images for end in ends], dtype=np.int32)
    return {"images": np.repeat(images[:, None], len(ends[0].right), axis=1)}


def _insight(run: NetworkRun, ends: Sequence[TaskEnd], stage: Stage) -> dict[str, NDArray[Any]]:
    """Analyse the layer and the features after each task; docs/replay.md describes the arrays."""
    learned = stage.arrived(run)
    layers = [ranking_rows(run.head, end.layer) for end in ends]
    rows, bias = (np.stack(parts) for parts in zip(*layers, strict=True))
    weight = np.stack([end.layer["weight"].numpy() for end in ends])
    z = np.stack([end.features.numpy() for end in ends])
    drift = projection_drift(rows, z, stage.test_y, learned)
    found: dict[str, NDArray[Any]] = {"norm": class_norms(weight), "bias": bias}
    found |= {f"drift_{name}": values for name, values in drift._asdict().items()}
    if run.seed == 0:
        found["weight"] = weight
    narrow = {name: values.astype(np.float32) for name, values in found.items()}
    return narrow | {"lost_parts": loss_parts(rows, bias, z, stage.test_y, learned)}


def ranking_rows(
    layer: str, parts: Mapping[str, Tensor]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return rows (N, h) and biases (N,) such that z·row + bias ranks classes as the layer does.

    >>> rows, bias = ranking_rows("weight_norm", {"weight": torch.tensor([[3.0, 4.0]])})
    >>> rows.tolist(), bias.tolist()
    ([[0.6000000238418579, 0.800000011920929]], [0.0])
    """
    form, weight = LAYERS[layer].form, parts["weight"]
    rows = unit(weight)[0] if form.unit_rows else weight
    if form.gain == "gamma":
        rows = rows * parts["gamma"].unsqueeze(-1)
    return rows.numpy(), parts.get("bias", torch.zeros(len(rows))).numpy()
