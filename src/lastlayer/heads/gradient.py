"""Heads trained by gradient: a layer, a mask, and one step of descent for each batch."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.errors import DivergedError, OptionError
from lastlayer.heads.descent import Members, step
from lastlayer.heads.head import Head, Preset
from lastlayer.layers import LAYERS, MASKS
from lastlayer.layers.modules import Layer
from lastlayer.names import look_up

LEARNING_RATES = {
    "linear": 0.01,
    "linear_no_bias": 0.01,
    "weight_norm": 0.1,
    "original_weight_norm": 0.1,
    "cosine": 0.1,
}


class GradientHead(Head):
    """A layer that learns by SGD with momentum 0.9, clipped at 10: one ``observe`` is one step.

    "exact": classes never seen take no part, linear rows start at zero, and under a mask everything
    about a class absent from the batch stays as it is, its velocity too. "paper": all declared
    classes take part from the start, rows start kaiming normal, and momentum moves masked rows.

    Args:
        layer: a name in ``LAYERS``.
        in_features: the size h of a feature vector.
        n_classes: classes known beforehand.
        preset: "exact" or "paper".
        mask: "none", "single" or "group".
        lr: the learning rate; None: the preset's, 0.01 for linear layers and 0.1 for the others.
        seed: of the first rows.
        scale: cosine only: a factor on the logits.
        learn_scale: cosine only: train that factor.
    """

    passes = None
    velocity_weight: Tensor
    steps: Tensor

    def __init__(
        self,
        layer: str,
        in_features: int,
        n_classes: int = 0,
        preset: Preset = "exact",
        *,
        mask: str = "none",
        lr: float | None = None,
        seed: int = 0,
        scale: float | None = None,
        learn_scale: bool = False,
    ) -> None:
        look_up(mask, MASKS, "mask")
        kind = look_up(layer, LAYERS, "layer")
        lr = LEARNING_RATES[layer] if lr is None else float(lr)
        if not (lr > 0 and math.isfinite(lr)):
            raise OptionError(f"expected a learning rate above 0, got {lr}")
        extra: dict[str, Any] = {}
        if scale is not None or learn_scale:
            if layer != "cosine":
                raise OptionError(f"expected a scale for 'cosine' only, got one for '{layer}'")
            extra = {"scale": scale, "learn_scale": learn_scale}
        super().__init__(in_features, 0, preset, mask=mask, lr=lr, seed=seed, **extra)
        self.name = layer  # type: ignore[misc]  # a fact of the instance here
        self.layer: Layer = kind(in_features, 0, **extra)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        for name, part in self.layer.parts().items():
            self.register_buffer(f"velocity_{name}", torch.zeros_like(part))
        self.layer.requires_grad_(False)
        if n_classes:
            self._grow(n_classes)
