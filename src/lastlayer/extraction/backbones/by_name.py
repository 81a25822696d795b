"""The frozen backbones by name: how each is built, weighted, and given its images."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from lastlayer.core.checks import expect
from lastlayer.core.names import look_up
from lastlayer.extraction.backbones.preparation import (
    AUTHORS,
    IMAGENET,
    Prepare,
    Statistics,
    Transform,
)
from lastlayer.extraction.backbones.resnet20 import ResNet20
from lastlayer.extraction.backbones.timm_models import PREFIX, load_timm
from lastlayer.extraction.backbones.torchvision_models import build_torchvision, fetch_torchvision
from lastlayer.extraction.backbones.weights import fit, read_state

RELEASE = "https://github.com/chenyaofo/pytorch-cifar-models/releases"
Preparations = dict[str, Transform]  # by name, the usual one first


@dataclass(frozen=True)
class Backbone:
    """A network with released weights."""

    weights: str  # which, and where to get them
    build: Callable[[], nn.Module]  # the network, up to its features
    prepare: Callable[[str], Preparations]  # data set → what its images may be made into
    fetch: Callable[[], Mapping[str, Tensor]] | None = None  # downloads the weights
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


def _torchvision(name: str, file: str, unused: tuple[str, ...]) -> Backbone:
    return Backbone(
        weights=f"{file} from https://download.pytorch.org/models/{file}",
        build=partial(build_torchvision, name),
        prepare=_imagenet,
        fetch=partial(fetch_torchvision, name),
        unused=unused,
    )


BACKBONES = {
    "resnet20-cifar10": _resnet20(10, ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))),
    "resnet20-cifar100": _resnet20(100, ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761))),
    "resnet18": _torchvision("resnet18", "resnet18-f37072fd.pth", ("fc.",)),
    "vgg16": _torchvision("vgg16", "vgg16-397923af.pth", ("classifier.6.",)),
    "googlenet": _torchvision("googlenet", "googlenet-1378be20.pth", ("fc.", "aux1.", "aux2.")),
}


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
    if weights is None and backbone.fetch is not None:
        state = backbone.fetch()
    else:
        state = read_state(weights, expected)
    fit(network, state, f"{expected} in {weights}" if weights else expected, backbone.unused)
    return network.eval().requires_grad_(False), backbone.prepare(dataset)
