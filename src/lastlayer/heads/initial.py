"""Where the gradient layers start: the same rows for a class however the head has grown."""

import math

import numpy as np
import torch
from torch import Tensor

from lastlayer.heads.head import Preset
from lastlayer.layers import LAYERS

ZERO_ROWS = ("linear", "linear_no_bias")


def initial_parameters(
    layer: str, n_classes: int, in_features: int, preset: Preset, seed: int
) -> dict[str, Tensor]:
    """Give the first weight (N, h), and bias and gamma (N,) where the layer has them.

    Rows are kaiming normal and a bias as nn.Linear's; γ_i = ‖A_i‖. Under "exact" a linear layer
    starts at zero. Numbers are drawn class by class, so more classes leave the first ones alike.
    """
    names = LAYERS[layer].form.parameters
    if preset == "exact" and layer in ZERO_ROWS:
        weight = torch.zeros(n_classes, in_features)
        bias = torch.zeros(n_classes)
    else:
        draws = np.random.default_rng([seed, 0]).standard_normal((n_classes, in_features))
        weight = torch.from_numpy(draws * math.sqrt(2 / in_features)).float()
        spread = np.random.default_rng([seed, 1]).uniform(-1, 1, n_classes)
        bias = torch.from_numpy(spread / math.sqrt(in_features)).float()
    parts = {"weight": weight, "bias": bias, "gamma": weight.norm(dim=1)}
    return {name: parts[name] for name in names}
