"""A network on its way through the tasks: its learner, what it is fed, and its progress."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lastlayer.training.replay.checkpoint import Checkpoints
from lastlayer.training.replay.learner import Learner, Network
from lastlayer.training.replay.memory import ReplayStream


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
