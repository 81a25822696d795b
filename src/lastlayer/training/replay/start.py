"""First weights: PyTorch's own, or those of the authors' code, with its output layers.

The authors' networks start their convolutions kaiming normal (fan_out, for ReLU); what else a
backbone has stays as PyTorch makes it. Their layers start as ours do, except ``weight_norm`` and
``cosine``, which come from nngeometry: uniform rows like nn.Linear's, and norms √(‖x‖² + 1e-5).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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


def _as_made(backbone: nn.Module) -> None:
    """Leave a backbone as it is."""


def _kaiming_normal(backbone: nn.Module) -> None:
    for part in backbone.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")


STARTS: Mapping[str, Start] = {
    "pytorch": Start(_as_made, LAYERS),
    "authors": Start(
        _kaiming_normal, {**LAYERS, "weight_norm": AuthorsWeightNorm, "cosine": AuthorsCosine}
    ),
}
