"""The layers as modules for any network: features in, logits out."""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import torch
from torch import Tensor, nn

from lastlayer.core.checks import expect, real, whole
from lastlayer.core.names import look_up
from lastlayer.errors import DataError, OptionError, ShapeError, UnsupportedError
from lastlayer.layers.form import Form


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
