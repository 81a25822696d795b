"""Two ways to train many learners for an epoch: side by side, or as one grouped network."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from lastlayer.errors import OptionError
from lastlayer.training.replay.group import Group
from lastlayer.training.replay.grouped_net import GroupedNet, NotGroupableError, group_nets
from lastlayer.training.replay.learner import Learner
from lastlayer.training.replay.options import PRECISIONS, TrainingOptions
from lastlayer.training.replay.steps import Steps, steps_of, take_epoch


class Way(Protocol):
    """Takes epochs."""

    def take_epoch(self, learners: Sequence[Learner], orders: Sequence[Tensor]) -> None:
        """Train some of the learners, each on an epoch's rows in order."""


class SideBySide:
    """Each learner takes its own steps: recorded, on a stream of its own, or on a CPU in turn."""

    def __init__(self, learners: Sequence[Learner], batch_size: int, longest: int) -> None:
        self.steps: dict[int, Steps] = {
            id(learner): steps_of(learner, batch_size, longest) for learner in learners
        }

    def take_epoch(self, learners: Sequence[Learner], orders: Sequence[Tensor]) -> None:
        """Take an epoch of every learner, in turns."""
        take_epoch([self.steps[id(learner)] for learner in learners], orders)


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


def way_for(
    learners: Sequence[Learner], batch_size: int, longest: int, options: TrainingOptions
) -> Way:
    """Choose how learners train at once.

    Grouped on a GPU in TF32 or bfloat16, where that is faster, if their backbones have a grouped
    form. On a CPU nothing is gained by it.

    Args:
        learners: all that will be trained.
        batch_size: of a step.
        longest: how many rows the longest epoch has.
        options: ``way`` may ask for one of the two.
    """
    lower = PRECISIONS[options.precision].tf32
    worth = len(learners) > 1 and learners[0].pool.x.is_cuda and lower
    if learners and (options.way == "grouped" or (options.way == "auto" and worth)):
        try:
            return Grouped(_grouped_net(learners), batch_size)
        except NotGroupableError as error:
            if options.way == "grouped":
                raise OptionError(
                    f"expected a backbone that can be grouped, but {error}; leave out way='grouped'"
                ) from None
    return SideBySide(learners, batch_size, longest)


def _grouped_net(learners: Sequence[Learner]) -> GroupedNet:
    nets = [learner.net[:1] for learner in learners]  # names as in the whole
    pool = learners[0].pool
    with PRECISIONS["float32"].convolutions():
        return group_nets(nets, pool.normalised(pool.test_x[:1]))
