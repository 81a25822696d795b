"""The layers as modules for any network: features in, logits out."""

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from lastlayer.layers.form import (
    COSINE,
    COSINE_FIXED_SCALE,
    COSINE_LEARNED_SCALE,
    LINEAR,
    LINEAR_NO_BIAS,
    ORIGINAL_WEIGHT_NORM,
    WEIGHT_NORM,
    WEIGHT_NORM_FROZEN_GAIN,
    Form,
)
from lastlayer.names import look_up


class Layer(nn.Module):
    """An output layer: ``forward(z)`` maps features (…, n, in) to logits (…, n, out).

    Rows start kaiming normal and a bias as nn.Linear's, as in the paper; γ starts at ‖A_i‖.

    Args:
        in_features: the size h of a feature vector.
        out_features: how many classes.
    """

    form: Form
    gains: Mapping[str, Form] = MappingProxyType(
        {}
    )  # its form by the option ``gain``, where it has that
    weight: nn.Parameter

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        if "bias" in self.form.parameters:
            self.bias = nn.Parameter(torch.empty(out_features))
        if "gamma" in self.form.learned:
            self.gamma = nn.Parameter(torch.empty(out_features))
        elif "gamma" in self.form.parameters:
            self.register_buffer("gamma", torch.empty(out_features))
        if out_features:
            self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start anew."""
        nn.init.kaiming_normal_(self.weight)
        if "bias" in self.form.parameters:
            bound = 1 / math.sqrt(self.in_features)
            nn.init.uniform_(self.bias, -bound, bound)
        if "gamma" in self.form.parameters:
            self.gamma.copy_(self.weight.norm(dim=1))

    def parts(self) -> dict[str, Tensor]:
        """Give the parameters by name, as the closed form takes them."""
        return {name: getattr(self, name) for name in self.form.parameters}

    def forward(self, z: Tensor) -> Tensor:
        """Give the logits."""
        return self.form.logits(z, self.parts())

    def extra_repr(self) -> str:
        """Say the sizes, as nn.Linear does."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


class Linear(Layer):
    """Logits z·A_i + b_i (the paper's eq. 1)."""

    form: Form = LINEAR


class LinearNoBias(Layer):
    """Logits z·A_i (the paper's Linear_no_bias, eq. 2)."""

    form: Form = LINEAR_NO_BIAS


class WeightNorm(Layer):
    """Logits g_i · z·A_i/‖A_i‖, with g_i = 1 (the paper's WeightNorm, eq. 3).

    Args:
        in_features: the size h of a feature vector.
        out_features: how many classes.
        gain: "unit", as in the paper, or "frozen": g_i stays ‖A_i‖ of the start, as it did for ten
            days in the authors' code.
    """

    form: Form = WEIGHT_NORM
    gains: Mapping[str, Form] = MappingProxyType(
        {"unit": WEIGHT_NORM, "frozen": WEIGHT_NORM_FROZEN_GAIN}
    )

    def __init__(self, in_features: int, out_features: int, gain: str = "unit") -> None:
        self.form = look_up(gain, self.gains, "gain")
        super().__init__(in_features, out_features)


class OriginalWeightNorm(Layer):
    """Logits γ_i · z·A_i/‖A_i‖ (the paper's OriginalWeightNorm, eq. 5; no bias, as in its code)."""

    form: Form = ORIGINAL_WEIGHT_NORM


class Cosine(Layer):
    """Logits s · cos(z, A_i) (the paper's CosLayer, eq. 4); the cosine of a zero vector is 0.

    Args:
        in_features: the size h of a feature vector.
        out_features: how many classes.
        scale: s; None, as in the paper, is 1.
        learn_scale: train s along with the rows.
    """

    form: Form = COSINE

    def __init__(
        self,
        in_features: int,
        out_features: int,
        scale: float | None = None,
        learn_scale: bool = False,
    ) -> None:
        super().__init__(in_features, out_features)
        if learn_scale:
            self.form = COSINE_LEARNED_SCALE
            self.scale = nn.Parameter(torch.tensor(1.0 if scale is None else float(scale)))
        elif scale is not None:
            self.form = COSINE_FIXED_SCALE
            self.register_buffer("scale", torch.tensor(float(scale)))
