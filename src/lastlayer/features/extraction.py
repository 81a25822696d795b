"""Compute the features of a data set's images on a frozen backbone."""

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lastlayer import files
from lastlayer.errors import OptionError
from lastlayer.features.backbones import BACKBONES, load_backbone
from lastlayer.features.cifar import read_cifar
from lastlayer.features.data import Features, Origin
from lastlayer.features.feature_set import FeatureSet
from lastlayer.names import look_up

Statistics = tuple[tuple[float, float, float], tuple[float, float, float]]  # mean, std

# What the authors of the study normalised the images with, whatever the backbone.
AUTHORS: dict[str, Statistics] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2009, 0.1984, 0.2023)),
}
NORMALISATIONS: dict[str, Callable[[str, str], Statistics]] = {
    "authors": lambda dataset, backbone: AUTHORS[dataset],
    "trained": lambda dataset, backbone: (BACKBONES[backbone].mean, BACKBONES[backbone].std),
}
DTYPES = {"float16": torch.float16, "float32": torch.float32}


def extract(
    dataset: str,
    root: str | os.PathLike[str],
    backbone: str,
    weights: str | os.PathLike[str] | None,
    *,
    normalisation: str = "authors",
    batch_size: int = 500,
    dtype: str = "float16",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Features:
    """Read the images, push them through the backbone in batches, and keep the features.

    Args:
        dataset: ``cifar10`` or ``cifar100``.
        root: Where its official files are.
        backbone: A name of ``BACKBONES``.
        weights: The file of its released weights.
        normalisation: ``authors`` as in the study, ``trained`` as the backbone was trained with.
        batch_size: Images in one go.
        dtype: ``float16`` or ``float32``, how the features are kept.
        progress: Called after each batch with the number of images done and in all.
    """
    look_up(dataset, AUTHORS, "data set")
    kept = look_up(dtype, DTYPES, "type of features")
    statistics = look_up(normalisation, NORMALISATIONS, "normalisation")
    if batch_size < 1:
        raise OptionError(f"expected a batch size of at least 1, got {batch_size}")
    network = load_backbone(backbone, weights)
    train, test, names = read_cifar(dataset, root)
    batches = [*train.x.split(batch_size), *test.x.split(batch_size)]
    z = _forward(network, batches, statistics(dataset, backbone), progress).to(kept)
    n = len(train.x)
    origin = Origin(
        dataset=dataset,
        backbone=backbone,
        weights=files.fingerprint(network.state_dict()),
        normalisation=normalisation,
        made=_command(dataset, backbone, normalisation, dtype),
    )
    return Features(FeatureSet(z[:n], train.labels), FeatureSet(z[n:], test.labels), names, origin)


def normalise(images: Tensor, statistics: Statistics) -> Tensor:
    """Turn pixels 0…255 into what a network was trained on.

    >>> normalise(torch.full((1, 3, 1, 1), 255), ((1.0, 0.5, 0.5), (1.0, 1.0, 0.5))).flatten()
    tensor([0.0000, 0.5000, 1.0000])
    """
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in statistics)
    return (images / 255 - mean) / std


def _forward(
    network: nn.Module,
    batches: list[Tensor],
    statistics: Statistics,
    progress: Callable[[int, int], None],
) -> Tensor:
    total, done, features = sum(len(batch) for batch in batches), 0, []
    with torch.inference_mode():
        for batch in batches:
            features.append(network(normalise(batch, statistics)))
            done += len(batch)
            progress(done, total)
    return torch.cat(features)


def _command(dataset: str, backbone: str, normalisation: str, dtype: str) -> str:
    """Give the command that makes these features again, with no path of this machine in it."""
    return (
        f"lastlayer extract {dataset} --root ROOT --backbone {backbone} --weights WEIGHTS "
        f"--normalisation {normalisation} --dtype {dtype} --out FILE"
    )
