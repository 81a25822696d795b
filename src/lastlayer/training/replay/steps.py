"""The steps of a learner: called directly on a CPU, replayed as a CUDA graph on a GPU.

A step on a small batch takes a GPU less time to run than to launch, and fills only a small part of
it. So a step is recorded once and then launched whole, and each learner has a stream of its own:
the graphs of many learners run side by side, each exactly as it would alone.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from lastlayer.training.replay.learner import Learner


class Steps(Protocol):
    """Takes the steps of an epoch, one for each batch."""

    def begin(self, order: Tensor) -> int:
        """Lay out an epoch's rows in order; return how many steps it takes."""

    def take(self, step: int) -> None:
        """Take the next step, whose number is given."""

    def end(self) -> None:
        """Let what comes next wait for these steps."""


def steps_of(learner: Learner, batch_size: int, longest: int) -> Steps:
    """Return the object that takes a learner's steps; no epoch has more than ``longest`` rows."""
    if learner.pool.x.is_cuda:
        return RecordedSteps(learner, batch_size, longest)
    return PlainSteps(learner, batch_size)


def take_epoch(all_steps: Sequence[Steps], orders: Sequence[Tensor]) -> None:
    """Take an epoch of every learner, in turns; one with a shorter epoch finishes earlier."""
    counts = [steps.begin(order) for steps, order in zip(all_steps, orders, strict=True)]
    for step in range(max(counts, default=0)):
        for steps, n_steps in zip(all_steps, counts, strict=True):
            if step < n_steps:
                steps.take(step)
    for steps in all_steps:
        steps.end()


class PlainSteps:
    """Takes one step after the other."""

    def __init__(self, learner: Learner, batch_size: int) -> None:
        self.learner, self.batch_size = learner, batch_size

    def begin(self, order: Tensor) -> int:
        """Cut an epoch into batches; a last one of a single image is left out."""
        batches = order.to(self.learner.pool.y.device).split(self.batch_size)
        self.batches = [rows for rows in batches if len(rows) > 1]
        return len(self.batches)

    def take(self, step: int) -> None:
        """Take one step."""
        self.learner.step(self.batches[step])

    def end(self) -> None:
        """Nothing to wait for."""


class RecordedSteps:
    """Replays a step. The first full batch runs directly, then the step is recorded.

    A recorded step finds its batch by a counter in GPU memory, so nothing is copied between two
    steps. The last batch of an epoch, if it is smaller, runs directly.
    """

    def __init__(self, learner: Learner, batch_size: int, longest: int) -> None:
        device = learner.pool.x.device
        self.learner, self.stream = learner, torch.cuda.Stream(device)
        self.rows = torch.zeros(longest // batch_size, batch_size, dtype=torch.int64, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def begin(self, order: Tensor) -> int:
        """Bring an epoch's rows to the GPU; a last batch of a single image is left out."""
        size = self.rows.shape[1]
        self.n_full = len(order) // size
        full, self.last = order.to(self.rows.device).tensor_split([self.n_full * size])
        self.rows[: self.n_full] = full.view(-1, size)
        self.at.zero_()
        self.stream.wait_stream(torch.cuda.current_stream())
        return self.n_full + (len(self.last) > 1)

    def take(self, step: int) -> None:
        """Launch one step on the learner's own stream."""
        with torch.cuda.stream(self.stream):
            if step == self.n_full:
                self.learner.step(self.last)
            elif self.graph is not None:
                self.graph.replay()
            else:
                self._next()
                self._record()

    def end(self) -> None:
        """Let the current stream wait."""
        torch.cuda.current_stream().wait_stream(self.stream)

    def _next(self) -> None:
        self.learner.step(self.rows.index_select(0, self.at)[0])
        self.at += 1

    def _record(self) -> None:
        """Record a step without running it."""
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self._next()
