"""Training many learners for an epoch: as one grouped network, or side by side.

A step on a small batch takes a GPU less time to run than to launch, and fills only a small part of
it. So a step is recorded once and then launched whole, as a CUDA graph, and each learner has a
stream of its own: the graphs of many learners run side by side, each exactly as it would alone. On
a CPU steps are taken directly, in turns.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lastlayer.errors import OptionError
from lastlayer.replay.training.grouped_net import GroupedNet, NotGroupableError, group_nets
from lastlayer.replay.training.learner import Learner
from lastlayer.replay.training.network_group import Group, Recorder
from lastlayer.replay.training.training_options import PRECISIONS, TrainingOptions


class Steps:
    """The steps of one learner.

    A step finds its batch by a counter on the device, so nothing is copied between two steps. The
    last batch of an epoch, if it is smaller, is taken directly.
    """

    def __init__(self, learner: Learner, batch_size: int, longest: int) -> None:
        device = learner.pool.x.device
        self.learner, self.recorder = learner, Recorder(device)
        self.rows = torch.zeros(longest // batch_size, batch_size, dtype=torch.int64, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)

    def begin(self, order: Tensor) -> int:
        """Bring an epoch's rows to the device; a last batch of a single image is left out."""
        size = self.rows.shape[1]
        self.n_full = len(order) // size
        full, self.last = order.to(self.rows.device).tensor_split([self.n_full * size])
        self.rows[: self.n_full] = full.view(-1, size)
        self.at.zero_()
        self.recorder.begin()
        return self.n_full + (len(self.last) > 1)

    def take(self, step: int) -> None:
        """Take one step."""
        if step == self.n_full:
            self.recorder.directly(lambda: self.learner.step(self.last))
        else:
            self.recorder.take(self._next)

    def _next(self) -> None:
        self.learner.step(self.rows.index_select(0, self.at)[0])
        self.at += 1


class SideBySide:
    """Each learner takes its own steps: recorded, on a stream of its own, or on a CPU in turn."""

    def __init__(self, learners: Sequence[Learner], batch_size: int, longest: int) -> None:
        self.steps = {id(learner): Steps(learner, batch_size, longest) for learner in learners}

    def take_epoch(self, learners: Sequence[Learner], orders: Sequence[Tensor]) -> None:
        """Take an epoch of every learner, in turns; one with a shorter epoch finishes earlier."""
        chosen = [self.steps[id(learner)] for learner in learners]
        counts = [steps.begin(order) for steps, order in zip(chosen, orders, strict=True)]
        for step in range(max(counts, default=0)):
            for steps, n_steps in zip(chosen, counts, strict=True):
                if step < n_steps:
                    steps.take(step)
        for steps in chosen:
            steps.recorder.end()


class Grouped:
    """All learners take their steps as one network; those with longer epochs come first."""

    def __init__(self, net: GroupedNet, batch_size: int) -> None:
        self.net, self.batch_size = net, batch_size
        self.group: Group | None = None

    def take_epoch(self, learners: Sequence[Learner], orders: Sequence[Tensor]) -> None:
        """Take an epoch of every learner, in step."""
        places = sorted(range(len(orders)), key=lambda place: -len(orders[place]))
        sorted_learners = [learners[place] for place in places]
        if self.group is None or self.group.learners != sorted_learners:
            self.group = Group(sorted_learners, self.net, self.batch_size) if learners else None
        if self.group is not None:
            self.group.take_epoch([orders[place] for place in places])


def trainer_for(
    learners: Sequence[Learner], batch_size: int, longest: int, options: TrainingOptions
) -> SideBySide | Grouped:
    """Return what trains learners at once, in epochs of at most ``longest`` rows.

    Unless the options ask for one of the two: grouped on a GPU in TF32 or bfloat16, where that is
    faster, if their backbones have a grouped form. On a CPU nothing is gained by it.
    """
    lower = PRECISIONS[options.precision].tf32
    worth = len(learners) > 1 and learners[0].pool.x.is_cuda and lower
    if learners and (worth if options.grouped is None else options.grouped):
        try:
            pool = learners[0].pool
            nets = [learner.net[:1] for learner in learners]  # names as in the whole
            with PRECISIONS["float32"].convolutions():
                net = group_nets(nets, pool.normalised(pool.test_x[:1]))
            return Grouped(net, batch_size)
        except NotGroupableError as error:
            if options.grouped:
                raise OptionError(
                    f"the backbone cannot be grouped: {error}; leave out grouped=True"
                ) from None
    return SideBySide(learners, batch_size, longest)
