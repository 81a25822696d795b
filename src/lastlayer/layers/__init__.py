"""Layers: features to logits, as closed forms and as modules, and the masks of their training."""

from collections.abc import Mapping

from lastlayer.layers.mask import MASKS, masked_cross_entropy
from lastlayer.layers.modules import (
    Cosine,
    Form,
    Layer,
    Linear,
    LinearNoBias,
    OriginalWeightNorm,
    WeightNorm,
)

LAYERS: Mapping[str, type[Layer]] = {
    "linear": Linear,
    "linear_no_bias": LinearNoBias,
    "weight_norm": WeightNorm,
    "original_weight_norm": OriginalWeightNorm,
    "cosine": Cosine,
}

__all__ = [
    "LAYERS",
    "MASKS",
    "Form",
    "Layer",
    "Linear",
    "LinearNoBias",
    "WeightNorm",
    "OriginalWeightNorm",
    "Cosine",
    "masked_cross_entropy",
]
