"""The mathematics of a layer: a linear map whose rows are made from its parameters.

All of the paper's layers are ``logits = rows(parameters) · x + bias`` with x = z, or x = z/‖z‖ for
cosine. So a layer is told apart by two functions, its rows and how a gradient on the rows becomes
one on the parameters; both take any leading dimensions, one for each member of a fleet.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]  # weight (…, N, h); bias, gamma (…, N); scale (…,)


@dataclass(frozen=True)
class Form:
    """A layer's logits and gradient in closed form."""

    parameters: tuple[str, ...]  # what it has, in the order of the table in the paper
    rows: Callable[[Parameters], Tensor]  # → (…, N, h)
    pull_back: Callable[[Parameters, Tensor], dict[str, Tensor]]  # gradient on the rows (…, N, h) →
    unit_input: bool = False  # z enters as z/‖z‖
    fixed: tuple[str, ...] = ()  # parameters that are not learned

    @property
    def learned(self) -> tuple[str, ...]:
        """The parameters that training moves."""
        return tuple(name for name in self.parameters if name not in self.fixed)

    def logits(self, z: Tensor, parameters: Parameters) -> Tensor:
        """Give the logits (…, n, N) of features ``z`` (…, n, h)."""
        logits = self.input(z) @ self.rows(parameters).mT
        return logits + parameters["bias"].unsqueeze(-2) if "bias" in parameters else logits

    def gradient(self, z: Tensor, parameters: Parameters, g: Tensor) -> dict[str, Tensor]:
        """Turn the gradient ``g`` (…, n, N) on the logits into one on each learned parameter."""
        gradient = self.pull_back(parameters, g.mT @ self.input(z))
        if "bias" in parameters:
            gradient["bias"] = g.sum(dim=-2)
        return gradient

    def input(self, z: Tensor) -> Tensor:
        """Give what the rows are multiplied with: z, or its direction."""
        return unit(z)[0] if self.unit_input else z


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """Give the directions of the vectors ``x`` (…, h) and 1/‖x‖; both are zero where x is zero."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    inverse = torch.where(norm > 0, 1 / norm.clamp(min=torch.finfo(x.dtype).tiny), 0)
    return x * inverse, inverse


def across(gradient: Tensor, direction: Tensor, along: Tensor) -> Tensor:
    """Take the part along a direction out of a gradient: turning a unit vector is all it can do."""
    return gradient - along * direction
