"""One step of a fleet on its device: a plain call on a CPU, a replayed CUDA graph on a GPU."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lastlayer.heads.gradient.descent import step
from lastlayer.heads.gradient.members import Members
from lastlayer.training.pool import Pool


@dataclass
class Stepper:
    """Takes steps. On a GPU the first batch of a shape runs directly, then the step is recorded."""

    fleet: Members
    pool: Pool
    _graphs: dict[tuple[int, bool], "_Graph"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set memory aside for the graphs."""
        self.memory = torch.cuda.graph_pool_handle() if self.pool.z.is_cuda else None

    def __call__(self, rows: Tensor, share: Tensor | None) -> None:
        """Take one step on the rows (S, n) of the pool."""
        key = (rows.shape[1], share is not None)
        if rows.is_cuda and key in self._graphs:
            self._graphs[key].replay(rows, share)
            return
        step(self.fleet, self.pool.z[rows], self.pool.y[rows], share)
        if rows.is_cuda:
            self._graphs[key] = _Graph(self, rows.clone(), None if share is None else share.clone())


class _Graph:
    """A recorded step: recording runs nothing, replaying launches all its kernels at once."""

    def __init__(self, stepper: Stepper, rows: Tensor, share: Tensor | None) -> None:
        self.rows, self.share = rows, share
        self.graph = torch.cuda.CUDAGraph()
        # What a step leaves behind is in the fleet, so that all graphs may use the same memory.
        with torch.cuda.graph(self.graph, pool=stepper.memory):
            step(stepper.fleet, stepper.pool.z[rows], stepper.pool.y[rows], share)

    def replay(self, rows: Tensor, share: Tensor | None) -> None:
        self.rows.copy_(rows)
        if share is not None and self.share is not None:
            self.share.copy_(share)
        self.graph.replay()
