"""The frozen backbones by name, and the loading of their weights."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lastlayer.errors import FileFormatError, MissingFileError
from lastlayer.features.resnet20 import ResNet20
from lastlayer.names import look_up

RELEASE = "https://github.com/chenyaofo/pytorch-cifar-models/releases"


@dataclass(frozen=True)
class Backbone:
    """A network with released weights, and how images were normalised when it was trained."""

    n_classes: int
    weights: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


BACKBONES = {
    "resnet20-cifar10": Backbone(
        n_classes=10,
        weights=f"cifar10_resnet20 from {RELEASE}",
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
    ),
    "resnet20-cifar100": Backbone(
        n_classes=100,
        weights=f"cifar100_resnet20 from {RELEASE}",
        mean=(0.5070, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2761),
    ),
}


def load_backbone(name: str, weights: str | os.PathLike[str] | None) -> nn.Module:
    """Build a backbone with the released weights, frozen and in evaluation mode."""
    backbone = look_up(name, BACKBONES, "backbone")
    state = _read_state(weights, f"the weights of {name} ({backbone.weights})")
    network = ResNet20(backbone.n_classes)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise FileFormatError(
            f"expected the weights of {name} ({backbone.weights}), but {weights} does not fit: "
            f"{reason}"
        ) from error
    return network.eval().requires_grad_(False)


def _read_state(weights: str | os.PathLike[str] | None, expected: str) -> Mapping[str, Any]:
    """Read a state dict; ``weights_only`` refuses whatever could run code."""
    if weights is None or not Path(weights).is_file():
        given = "none were given" if weights is None else f"there is no file {weights}"
        raise MissingFileError(f"expected {expected}, but {given}: download and name them")
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged checkpoint may raise anything
        raise FileFormatError(
            f"expected {expected}, but {weights} is no PyTorch checkpoint, or not a safe one"
        ) from error
    if not isinstance(state, dict):
        raise FileFormatError(f"expected a state dict in {weights}, got {type(state).__name__}")
    return state
