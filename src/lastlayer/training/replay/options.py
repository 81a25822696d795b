"""Options of training that the paper leaves open: clipping, first weights, precision."""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass

import torch

from lastlayer.errors import OptionError
from lastlayer.names import look_up
from lastlayer.training.replay.start import STARTS

WAYS = ("auto", "grouped", "side_by_side")


@dataclass(frozen=True)
class Precision:
    """What a training step computes in; parameters and optimizer keep the pool's type."""

    tf32: bool = False  # convolutions on a GPU, in training and in tests
    cast: torch.dtype | None = None  # of the backbone's products in training
    channels_last: bool = False  # images and maps, of a group its kernels too

    @contextmanager
    def convolutions(self) -> Iterator[None]:
        """Set, within a block, whether convolutions may use TF32, PyTorch's default on a GPU."""
        now = torch.backends.cudnn
        with now.flags(
            now.enabled, now.benchmark, deterministic=now.deterministic, allow_tf32=self.tf32
        ):
            yield

    def casting(self, device: torch.device) -> AbstractContextManager[object]:
        """Cast within a block as PyTorch's autocast does."""
        return torch.autocast(device.type, self.cast) if self.cast else nullcontext()


PRECISIONS: Mapping[str, Precision] = {
    "float32": Precision(),
    "tf32": Precision(tf32=True, channels_last=True),
    "bfloat16": Precision(tf32=True, cast=torch.bfloat16, channels_last=True),
}


@dataclass(frozen=True)
class TrainingOptions:
    """How networks are trained where the paper is silent; ``AUTHORS`` is what its code does.

    They are kept apart from the rules, which are part of a stored result's name: a network without
    options keeps the name that it had before there were options.
    """

    clip: float | None = None  # the norm of a step's gradient, over all of a network's parameters
    start: str = "pytorch"  # "authors": see `start`
    precision: str = "float32"  # the pool's own type; or "tf32", "bfloat16"
    way: str = "auto"  # how many train at once: "grouped", "side_by_side"; decides no numbers
    save_every: int = 1  # epochs between two checkpoints; decides no numbers either

    def __post_init__(self) -> None:
        """Check the names and numbers."""
        look_up(self.start, STARTS, "start")
        look_up(self.precision, PRECISIONS, "precision")
        look_up(self.way, dict.fromkeys(WAYS), "way")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise OptionError(
                f"expected a gradient norm above 0 to clip at, or None, got {self.clip}"
            )
        if self.save_every < 1:
            raise OptionError(f"expected checkpoints every 1 epoch or more, got {self.save_every}")

    def decisive(self) -> dict[str, object]:
        """Return the options that affect the numbers and differ from the default.

        >>> TrainingOptions(clip=10, way="grouped").decisive()
        {'clip': 10}
        """
        usual, own = (asdict(options) for options in (TrainingOptions(), self))
        names = ("clip", "start", "precision")
        return {name: own[name] for name in names if own[name] != usual[name]}


AUTHORS = TrainingOptions(clip=10.0, start="authors")
