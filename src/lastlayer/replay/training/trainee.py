"""A network on its way through the tasks: its learner, what it trains on, and its checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import OptionError
from lastlayer.replay.training.learner import Learner, Network
from lastlayer.replay.training.replay_stream import ReplayStream

KIND = "checkpoint"
Setting = Mapping[str, Any]  # what decides the numbers; as JSON gives it back


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one network: one file for each task, rewritten as training proceeds."""

    folder: Path
    setting: Setting
    epochs: int  # of a task
    every: int = 1  # epochs between two of them

    def due(self, epochs: int) -> bool:
        """Return whether to write one after this many epochs of a task; always after the last."""
        return epochs == self.epochs or epochs % self.every == 0

    def save(self, task: int, learner: Learner, right: list[Tensor]) -> None:
        """Write a learner, and its right answers after each epoch of the task so far.

        The optimizer is not kept once its task is done.
        """
        tensors = {f"net.{name}": value for name, value in learner.net.state_dict().items()}
        if len(right) < self.epochs:
            tensors |= _optimizer_tensors(learner)
        tensors["right"] = torch.stack(right)
        write_tensors(self._path(task), KIND, tensors, {"setting": self.setting})

    def load(self, task: int, learner: Learner) -> list[Tensor]:
        """Restore a learner from its checkpoint; return its right answers after each epoch.

        Where there is no checkpoint, the learner stays as it is and the list is empty.
        """
        path = self._path(task)
        if not path.exists():
            return []
        tensors, metadata = read_tensors(path, KIND)
        self._check(path, metadata["setting"])
        right = tensors.pop("right").clone()
        net = {name[4:]: value for name, value in tensors.items() if name.startswith("net.")}
        learner.net.load_state_dict(net)
        _load_optimizer(learner, tensors)
        return list(right)

    def _path(self, task: int) -> Path:
        return self.folder / f"task-{task}.safetensors"

    def _check(self, path: Path, found: Setting) -> None:
        names = dict.fromkeys([*self.setting, *found])
        keys = [key for key in names if self.setting.get(key) != found.get(key)]
        if keys:
            expected, got = ({key: of.get(key) for key in keys} for of in (self.setting, found))
            raise OptionError(
                f"the checkpoint {path} belongs to another setting: expected {expected}, got "
                f"{got}; choose another folder, or remove this one"
            )


def _optimizer_tensors(learner: Learner) -> dict[str, Tensor]:
    states = learner.optimizer.state_dict()["state"]
    return {
        f"optimizer.{number}.{name}": value
        for number, state in states.items()
        for name, value in state.items()
    }


def _load_optimizer(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, number, name = key.split(".")
            state.setdefault(int(number), {})[name] = value.clone()
    groups = learner.optimizer.state_dict()["param_groups"]
    learner.optimizer.load_state_dict({"state": state, "param_groups": groups})


@dataclass(frozen=True)
class TaskEnd:
    """One network at the end of one task; all tensors are on the CPU."""

    network: Network
    task: int
    layer: Mapping[str, Tensor]  # weight (N, h); bias, gamma (N,) where the layer has them
    features: Tensor  # (m, h) of the test images, as the layer sees them now
    right: Tensor  # (epochs, N) right answers of each class after each epoch; −1: diverged
    images: int  # that one epoch of the task trained on


@dataclass
class Trainee:
    """One network, between two epochs."""

    network: Network
    stream: ReplayStream
    learner: Learner
    checkpoints: Checkpoints | None
    right: list[Tensor] = field(default_factory=list)  # one for each epoch of the task that is done
    catching_up: bool = True  # every task so far was found done
    kept: int = 0  # epochs of the task that a checkpoint holds

    def begin(self, task: int) -> None:
        """Start a task with a new optimizer, or resume it from a checkpoint."""
        self.learner.restart()
        self.right = []
        if self.checkpoints and self.catching_up:
            self.right = self.checkpoints.load(task, self.learner)
            self.catching_up = len(self.right) == self.checkpoints.epochs
        self.kept = len(self.right)

    def end_epoch(self, task: int) -> None:
        """Score the network after the epoch, and write a checkpoint when one is due."""
        self.right.append(self.learner.right())
        if self.checkpoints and self.checkpoints.due(len(self.right)):
            self.keep(task)

    def keep(self, task: int) -> None:
        """Write a checkpoint, unless there is one already."""
        if self.checkpoints and self.kept < len(self.right):
            self.checkpoints.save(task, self.learner, self.right)
            self.kept = len(self.right)

    def end(self, task: int) -> TaskEnd:
        """Return the state of the network after a task."""
        return TaskEnd(
            self.network,
            task,
            {
                name: part.detach().cpu().clone()
                for name, part in self.learner.layer.parts().items()
            },
            self.learner.features().cpu(),
            torch.stack(self.right),
            len(self.stream.rows[task]),
        )
