"""Where the gradient layers start: the same rows for a class however the head has grown."""

import math

import numpy as np
import torch
from torch import Tensor

from lastlayer.heads.head import Preset
from lastlayer.layers import LAYERS

ZERO_ROWS = ("linear", "linear_no_bias")
UNIFORM_ROWS = (*ZERO_ROWS, "original_weight_norm")


def initial_parameters(
    layer: str, n_classes: int, in_features: int, preset: Preset, seed: int, mask: str = "none"
) -> dict[str, Tensor]:
    """Give the first weight (N, h), and bias and gamma (N,) where the layer has them.

    Rows are kaiming normal and a bias as nn.Linear's; γ_i = ‖A_i‖. Under "exact" a linear layer
    starts at zero. Under "paper" the layers that are nn.Linear inside have its own uniform rows,
    unless masked by "single": so the published numbers were made. Numbers are drawn class by class,
    so more classes leave the first ones alike.
    """
    names = LAYERS[layer].form.parameters
    uniform = preset == "paper" and mask != "single" and layer in UNIFORM_ROWS
    if preset == "exact" and layer in ZERO_ROWS:
        weight = torch.zeros(n_classes, in_features)
        bias = torch.zeros(n_classes)
    else:
        weight = _rows(n_classes, in_features, seed, uniform)
        spread = np.random.default_rng([seed, 1]).uniform(-1, 1, n_classes)
        bias = torch.from_numpy(spread / math.sqrt(in_features)).float()
    parts = {"weight": weight, "bias": bias, "gamma": weight.norm(dim=1)}
    return {name: parts[name] for name in names}


def _rows(n_classes: int, in_features: int, seed: int, uniform: bool) -> Tensor:
    source, shape = np.random.default_rng([seed, 0]), (n_classes, in_features)
    if uniform:
        draws = source.uniform(-1, 1, shape) / math.sqrt(in_features)
    else:
        draws = source.standard_normal(shape) * math.sqrt(2 / in_features)
    return torch.from_numpy(draws).float()
