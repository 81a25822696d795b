"""The study's ImageNet networks from torchvision, without the layers after their features."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from lastlayer.core.extras import extra
from lastlayer.errors import MissingFileError


def _models() -> Any:
    with extra("images", "a backbone of torchvision"):
        from torchvision import models  # noqa: PLC0415  (an extra)
    return models


def _resnet18(models: Any) -> nn.Module:
    """512 features, pooled over the image."""
    network: nn.Module = models.resnet18(weights=None)
    network.fc = nn.Identity()
    return network


def _vgg16(models: Any) -> nn.Module:
    """4096 features, those that the last layer sees."""
    network = models.vgg16(weights=None, init_weights=False)
    network.classifier[6] = nn.Identity()
    return cast(nn.Module, network)


def _googlenet(models: Any) -> nn.Module:
    """1024 features; it normalises images once more itself, as its weights were trained."""
    network: nn.Module = models.googlenet(
        weights=None, aux_logits=False, transform_input=True, init_weights=False
    )
    network.fc = nn.Identity()
    return network


BUILDERS: Mapping[str, tuple[Callable[[Any], nn.Module], str]] = {
    "resnet18": (_resnet18, "ResNet18_Weights"),
    "vgg16": (_vgg16, "VGG16_Weights"),
    "googlenet": (_googlenet, "GoogLeNet_Weights"),
}


def build_torchvision(name: str) -> nn.Module:
    """Build a network that returns its features; its weights are random."""
    network = BUILDERS[name][0](_models())
    # Convolutions are a third faster on a CPU where channels lie last in memory.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def fetch_torchvision(name: str) -> Mapping[str, Tensor]:
    """Download the weights trained on ImageNet, or take them from PyTorch's cache."""
    weights = getattr(_models(), BUILDERS[name][1]).IMAGENET1K_V1
    try:
        state: Mapping[str, Tensor] = weights.get_state_dict(
            progress=False, check_hash=True, weights_only=True
        )
    except Exception as error:  # a download may fail in many ways
        raise MissingFileError(
            f"cannot download the weights of {name} ({error}): copy {weights.url} to this machine "
            "and pass it with --weights"
        ) from error
    return state
