"""The result of a network trained end to end: right answers, projection drift, causes of loss."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.analysis import class_norms, first_seen, loss_parts, projection_drift
from lastlayer.layers import LAYERS
from lastlayer.layers.form import unit
from lastlayer.replay.study.image_data import ImageData
from lastlayer.replay.study.network_run import NetworkRun
from lastlayer.replay.training.trainee import TaskEnd
from lastlayer.scenarios.spec import ScenarioSpec
from lastlayer.study.result import Result


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
