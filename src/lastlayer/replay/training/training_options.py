"""Options of training that the paper leaves open: clipping, first weights, precision.

The authors' networks start their convolutions kaiming normal (fan_out, for ReLU); what else a
backbone has stays as PyTorch makes it. Their layers start as ours do, except ``weight_norm`` and
``cosine``, which come from nngeometry: uniform rows like nn.Linear's, and norms √(‖x‖² + 1e-5).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from lastlayer.core.names import look_up
from lastlayer.errors import OptionError
from lastlayer.layers import LAYERS, Cosine, Layer, WeightNorm

EPS = 1e-5


class _UniformRows(Layer):
    """A layer whose rows start like those of nn.Linear."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start anew."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))


class AuthorsWeightNorm(_UniformRows, WeightNorm):
    """Logits z·A_i/√(‖A_i‖² + 1e-5)."""

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits."""
        return z @ _smooth_unit(self.weight).mT


class AuthorsCosine(_UniformRows, Cosine):
    """Logits cos(z, A_i), both norms with 1e-5 under the root."""

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits."""
        return _smooth_unit(z) @ _smooth_unit(self.weight).mT


def _smooth_unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(dim=-1, keepdim=True) + EPS).sqrt()


@dataclass(frozen=True)
class Start:
    """How the parts of a network are initialised."""

    backbone: Callable[[nn.Module], None]  # redraws what differs from PyTorch's own
    layers: Mapping[str, type[Layer]]


def _kaiming_normal(backbone: nn.Module) -> None:
    for part in backbone.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")


STARTS: Mapping[str, Start] = {
    "pytorch": Start(lambda backbone: None, LAYERS),
    "authors": Start(
        _kaiming_normal, {**LAYERS, "weight_norm": AuthorsWeightNorm, "cosine": AuthorsCosine}
    ),
}


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
    start: str = "pytorch"  # one of STARTS
    precision: str = "float32"  # the pool's own type; or "tf32", "bfloat16"
    # These decide no numbers: whether networks are trained as one (None: where that is faster),
    # and the epochs between two checkpoints.
    grouped: bool | None = None
    save_every: int = 1

    def __post_init__(self) -> None:
        """Check the names and numbers."""
        look_up(self.start, STARTS, "start")
        look_up(self.precision, PRECISIONS, "precision")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise OptionError(f"clip must be above 0, or None, got {self.clip}")
        if self.save_every < 1:
            raise OptionError(f"save_every must be at least 1, got {self.save_every}")

    def decisive(self) -> dict[str, object]:
        """Return the options that affect the numbers and differ from the default.

        >>> TrainingOptions(clip=10, grouped=True).decisive()
        {'clip': 10}
        """
        usual, own = (asdict(options) for options in (TrainingOptions(), self))
        names = ("clip", "start", "precision")
        return {name: own[name] for name in names if own[name] != usual[name]}


AUTHORS = TrainingOptions(clip=10.0, start="authors")
