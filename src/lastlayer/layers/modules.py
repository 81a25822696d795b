"""The layers: their mathematics in closed form, and modules that have them: features to logits.

    logits = gain · (x · a_i) + b_i,   x = z or z/‖z‖,   a_i = A_i or A_i/‖A_i‖

Four switches tell the paper's layers apart; the gain is 1, a learned γ_i for each class, or one
scale for all. Functions take any leading dimensions. The gradient is written in
``heads.gradient.descent``, for many members at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor, nn

from lastlayer.core.checks import expect, real, whole
from lastlayer.core.names import look_up
from lastlayer.errors import DataError, OptionError, ShapeError, UnsupportedError

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


class Layer(nn.Module):
    """An output layer: ``forward(z)`` maps features (…, n, in) to logits (…, n, out).

    Rows start kaiming normal and a bias as nn.Linear's, as in the paper; γ starts at ‖A_i‖.
    """

    form: Form
    gains: Mapping[str, Form] = MappingProxyType({})  # its form by ``gain``, where it has that
    weight: nn.Parameter

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        if not hasattr(self, "form"):
            raise UnsupportedError("a Layer is what layers have in common: make a Linear, say")
        self.in_features = whole(in_features, "in_features", least=1)
        self.out_features = whole(out_features, "out_features", least=0)
        self.weight = nn.Parameter(_empty(self.out_features, self.in_features))
        if "bias" in self.form.parameters:
            self.bias = nn.Parameter(torch.empty(self.out_features))
        if "gamma" in self.form.learned:
            self.gamma = nn.Parameter(torch.empty(self.out_features))
        elif "gamma" in self.form.parameters:
            self.register_buffer("gamma", torch.empty(self.out_features))
        if self.out_features:
            self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new first weights."""
        nn.init.kaiming_normal_(self.weight)
        if "bias" in self.form.parameters:
            bound = 1 / math.sqrt(self.in_features)
            nn.init.uniform_(self.bias, -bound, bound)
        if "gamma" in self.form.parameters:
            self.gamma.copy_(self.weight.norm(dim=1))

    def parts(self) -> dict[str, Tensor]:
        """Return the parameters by name, as the closed form takes them."""
        return {name: getattr(self, name) for name in self.form.parameters}

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits."""
        _check(z, self.weight)
        return self.form.logits(z, self.parts())

    def extra_repr(self) -> str:
        """Return the sizes for ``repr``, as nn.Linear does."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def _empty(n_classes: int, in_features: int) -> Tensor:
    try:
        return torch.empty(n_classes, in_features)
    except (RuntimeError, TypeError, OverflowError, MemoryError):
        raise OptionError(
            f"a layer must fit into memory, got {n_classes} classes of {in_features} features"
        ) from None


def _check(z: Tensor, weight: Tensor) -> None:
    """Refuse features that the rows cannot be multiplied with, and say why."""
    expect(z, Tensor, "features", "a tensor")
    if z.layout != torch.strided or not z.is_floating_point():
        raise DataError(
            f"features must be a dense floating-point tensor, got {z.dtype}, {z.layout}"
        )
    if z.dim() < 2 or z.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"features must have shape (…, n, {weight.shape[-1]}), got {tuple(z.shape)}"
        )
    if z.device != weight.device:
        raise DataError(f"features must be on {weight.device} as the layer is, got {z.device}")
    # Autocast brings both to one type by itself.
    if z.dtype != weight.dtype and not torch.is_autocast_enabled(z.device.type):
        raise DataError(
            f"features must be of type {weight.dtype} as the layer is, got {z.dtype}: "
            "use z.to(layer.weight.dtype)"
        )


class Linear(Layer):
    """Logits z·A_i + b_i (the paper's eq. 1)."""

    form: Form = Form(bias=True)


class LinearNoBias(Layer):
    """Logits z·A_i (the paper's Linear_no_bias, eq. 2)."""

    form: Form = Form()


class WeightNorm(Layer):
    """Logits g_i · z·A_i/‖A_i‖, with g_i = 1 (the paper's WeightNorm, eq. 3).

    Args:
        gain: "unit", as in the paper, or "frozen": g_i stays ‖A_i‖ of the start, as it did for ten
            days in the authors' code.
    """

    form: Form = Form(unit_rows=True)
    gains: Mapping[str, Form] = MappingProxyType(
        {"unit": form, "frozen": replace(form, gain="gamma", fixed_gain=True)}
    )

    def __init__(self, in_features: int, out_features: int, gain: str = "unit") -> None:
        self.form = look_up(gain, self.gains, "gain")
        super().__init__(in_features, out_features)


class OriginalWeightNorm(Layer):
    """Logits γ_i · z·A_i/‖A_i‖ (the paper's OriginalWeightNorm, eq. 5; no bias, as in its code)."""

    form: Form = Form(unit_rows=True, gain="gamma")


class Cosine(Layer):
    """Logits s · cos(z, A_i) (the paper's CosLayer, eq. 4); the cosine of a zero vector is 0.

    Args:
        scale: s; None, as in the paper, is 1.
        learn_scale: train s along with the rows.
    """

    form: Form = Form(unit_rows=True, unit_input=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        scale: float | None = None,
        learn_scale: bool = False,
    ) -> None:
        super().__init__(in_features, out_features)
        scale = None if scale is None else real(scale, "scale")
        expect(learn_scale, bool, "learn_scale", "True or False")
        if learn_scale:
            self.form = replace(self.form, gain="scale")
            self.scale = nn.Parameter(torch.tensor(1.0 if scale is None else scale))
        elif scale is not None:
            self.form = replace(self.form, gain="scale", fixed_gain=True)
            self.register_buffer("scale", torch.tensor(scale))
