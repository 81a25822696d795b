"""Where the gradient layers start: the same rows for a class however the head has grown."""

import math

import numpy as np
import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.heads.head import Preset
from lastlayer.layers import LAYERS, Form

ZERO_ROWS = ("linear", "linear_no_bias")


def initial_parameters(
    layer: str,
    n_classes: int,
    in_features: int,
    preset: Preset,
    seed: int,
    start: str | None = None,
    gain: str | None = None,
) -> dict[str, Tensor]:
    """Return the first weight (N, h), and bias and gamma (N,) where the layer has them.

    Rows are kaiming normal and a bias as nn.Linear's; γ_i = ‖A_i‖. Under "exact" a linear layer
    starts at zero. Under "paper" the layers that are nn.Linear inside may start with its own
    uniform rows, as they did in the authors' code until September 2021 (docs/decisions/9).
    Numbers are drawn class by class, so that more classes leave the first ones unchanged. ``start``
    and ``gain`` are the options of ``GradientHead``; None: the layer's default.
    """
    uniform = preset == "paper" and HEADS[layer].start(start) == "uniform"
    if preset == "exact" and layer in ZERO_ROWS:
        weight = torch.zeros(n_classes, in_features)
        bias = torch.zeros(n_classes)
    else:
        weight = _rows(n_classes, in_features, seed, uniform)
        spread = np.random.default_rng([seed, 1]).uniform(-1, 1, n_classes)
        bias = torch.from_numpy(spread / math.sqrt(in_features)).float()
    parts = {"weight": weight, "bias": bias, "gamma": weight.norm(dim=1)}
    return {name: parts[name] for name in form_of(layer, gain).parameters}


def form_of(layer: str, gain: str | None = None) -> Form:
    """Return the closed form of a layer with the gain asked for."""
    found = HEADS[layer].gain(gain)
    return LAYERS[layer].form if found is None else LAYERS[layer].gains[found]


def _rows(n_classes: int, in_features: int, seed: int, uniform: bool) -> Tensor:
    source, shape = np.random.default_rng([seed, 0]), (n_classes, in_features)
    if uniform:
        draws = source.uniform(-1, 1, shape) / math.sqrt(in_features)
    else:
        draws = source.standard_normal(shape) * math.sqrt(2 / in_features)
    return torch.from_numpy(draws).float()
