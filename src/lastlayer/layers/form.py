"""The mathematics of a layer: four switches tell the paper's layers apart.

    logits = gain · (x · a_i) + b_i,   x = z or z/‖z‖,   a_i = A_i or A_i/‖A_i‖

The gain is 1, a learned γ_i for each class, or one scale for all. Functions take any leading
dimensions. The gradient is written in ``heads.gradient.descent``, for many members at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]  # weight (…, N, h); bias, gamma (…, N); scale (…,)


@dataclass(frozen=True)
class Form:
    """A layer's logits in closed form."""

    bias: bool = False  # b_i is added
    unit_rows: bool = False  # a row counts by its direction
    unit_input: bool = False  # a sample counts by its direction
    gain: Literal["gamma", "scale"] | None = None
    fixed_gain: bool = False  # the gain is not learned

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of what the layer has."""
        return ("weight", *(["bias"] if self.bias else []), *([self.gain] if self.gain else []))

    @property
    def learned(self) -> tuple[str, ...]:
        """The names of what training moves."""
        return tuple(p for p in self.parameters if p != self.gain or not self.fixed_gain)

    def rows(self, p: Parameters) -> Tensor:
        """Return gain_i · a_i (…, N, h): the rows by which a sample, or its direction, is weighed.

        The length of a sample is a factor of all its logits, so with these rows and b_i an
        nn.Linear has the same largest logit, of whichever form the layer is.
        """
        a = unit(p["weight"])[0] if self.unit_rows else p["weight"]
        return a * gain_of_rows(self, p).unsqueeze(-1) if self.gain else a

    def logits(self, z: Tensor, p: Parameters) -> Tensor:
        """Return the logits (…, n, N) of features ``z`` (…, n, h)."""
        x = unit(z)[0] if self.unit_input else z
        a = unit(p["weight"])[0] if self.unit_rows else p["weight"]
        logits = x @ a.mT
        if self.gain:
            logits = logits * gain_of_rows(self, p).unsqueeze(-2)
        return logits + p["bias"].unsqueeze(-2) if self.bias else logits


def gain_of_rows(form: Form, p: Parameters) -> Tensor:
    """Return the gain (…, N) of each class, or (…, 1) where one is for all."""
    return p["scale"].unsqueeze(-1) if form.gain == "scale" else p["gamma"]


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the directions of the vectors ``x`` (…, h) and 1/‖x‖; both are 0 where x is 0."""
    inverse = inverse_norm(x)
    return x * inverse, inverse


def inverse_norm(x: Tensor) -> Tensor:
    """Return 1/‖x‖ (…, 1), and 0 where x is zero."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.where(norm > 0, 1 / norm.clamp(min=torch.finfo(x.dtype).tiny), 0)
