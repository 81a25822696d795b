"""The frozen backbones by name: how each is built, weighted, and given its images."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from lastlayer.core.checks import expect
from lastlayer.core.extras import extra
from lastlayer.core.names import look_up
from lastlayer.errors import MissingFileError
from lastlayer.extraction.backbones.preparation import (
    AUTHORS,
    IMAGENET,
    Prepare,
    Statistics,
    Transform,
)
from lastlayer.extraction.backbones.resnet20 import ResNet20
from lastlayer.extraction.backbones.timm_models import PREFIX, load_timm
from lastlayer.extraction.backbones.weight_files import fit, read_state

RELEASE = "https://github.com/chenyaofo/pytorch-cifar-models/releases"
PYTORCH = "https://download.pytorch.org/models"
Preparations = dict[str, Transform]  # by name, the usual one first


@dataclass(frozen=True)
class Backbone:
    """A network with released weights."""

    weights: str  # which, and where to get them
    build: Callable[[], nn.Module]  # the network, up to its features
    prepare: Callable[[str], Preparations]  # data set → what its images may be made into
    url: str = ""  # where they can be downloaded as they are
    unused: tuple[str, ...] = ()  # weights of the layers that were taken off


def _small(trained: Statistics, dataset: str) -> Preparations:
    """Normalise as the authors of the study did for their data sets, or as in training."""
    authors = {"authors": Prepare(32, AUTHORS[dataset])} if dataset in AUTHORS else {}
    return {**authors, "trained": Prepare(32, trained)}


def _imagenet(dataset: str) -> Preparations:
    """Squeeze images to a square as the authors did, or crop the middle as in training."""
    return {"authors": Prepare(224, IMAGENET), "trained": Prepare(224, IMAGENET, shorter=256)}


def _resnet20(n_classes: int, trained: Statistics) -> Backbone:
    return Backbone(
        weights=f"cifar{n_classes}_resnet20 from {RELEASE}",
        build=partial(ResNet20, n_classes),
        prepare=partial(_small, trained),
    )


def _torchvision(name: str, file: str, *layers: str, **options: Any) -> Backbone:
    """Describe a network trained on ImageNet; the first of the layers is what its features are for.

    The others, which only training needs, have weights in the file too.
    """
    url = f"{PYTORCH}/{file}"
    return Backbone(
        weights=f"{file} from {url}",
        build=partial(_up_to, layers[0], name, options),
        prepare=_imagenet,
        url=url,
        unused=tuple(f"{layer}." for layer in layers),
    )


def _up_to(layer: str, name: str, options: dict[str, Any]) -> nn.Module:
    with extra("images", "a backbone of torchvision"):
        from torchvision import models  # noqa: PLC0415  (an extra)
    network: nn.Module = models.get_model(name, weights=None, **options)
    within, _, last = layer.rpartition(".")
    setattr(network.get_submodule(within), last, nn.Identity())
    # Convolutions are a third faster on a CPU where channels lie last in memory.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


BACKBONES = {
    "resnet20-cifar10": _resnet20(10, ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))),
    "resnet20-cifar100": _resnet20(100, ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761))),
    "resnet18": _torchvision("resnet18", "resnet18-f37072fd.pth", "fc"),
    "vgg16": _torchvision("vgg16", "vgg16-397923af.pth", "classifier.6", init_weights=False),
    # It normalises images once more itself, as its weights were trained.
    "googlenet": _torchvision(
        "googlenet", "googlenet-1378be20.pth", "fc", "aux1", "aux2",
        aux_logits=False, transform_input=True, init_weights=False,
    ),
}  # fmt: skip


def load_backbone(
    name: str, weights: str | os.PathLike[str] | None = None, dataset: str = ""
) -> tuple[nn.Module, Preparations]:
    """Build a frozen network with its weights; return how it wants images of a data set, too.

    Args:
        name: A name of ``BACKBONES``, or ``timm:NAME`` for any model of timm.
        weights: A file of weights, .safetensors or a state dict; if not given they are downloaded,
            where that is possible.
        dataset: The data set's name: the study's authors had a normalisation for each.
    """
    expect(name, str, "name", "the name of a backbone")
    if name.startswith(PREFIX):
        network, prepare = load_timm(name.removeprefix(PREFIX), weights)
        return network.eval().requires_grad_(False), {"trained": prepare}
    backbone = look_up(name, BACKBONES, f"backbone (or {PREFIX}NAME)")
    expected = f"the weights of {name} ({backbone.weights})"
    network = backbone.build()
    by_url = weights is None and backbone.url
    state = _download(name, backbone.url) if by_url else read_state(weights, expected)
    fit(network, state, f"{expected} in {weights}" if weights else expected, backbone.unused)
    return network.eval().requires_grad_(False), backbone.prepare(dataset)


def _download(name: str, url: str) -> dict[str, torch.Tensor]:
    """Download released weights, or take them from PyTorch's cache."""
    try:
        return torch.hub.load_state_dict_from_url(
            url, progress=False, check_hash=True, weights_only=True
        )
    except Exception as error:  # a download may fail in many ways
        raise MissingFileError(
            f"cannot download the weights of {name} ({error}): copy {url} to this machine and pass "
            "it with --weights"
        ) from error
