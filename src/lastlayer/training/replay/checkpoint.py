"""A checkpoint: a learner after an epoch, in a file that says which setting it belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lastlayer.errors import OptionError
from lastlayer.files import read_tensors, write_tensors
from lastlayer.training.replay.learner import Learner

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
