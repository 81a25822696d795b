"""The data sets by name: what each is, and what reads it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lastlayer.core.checks import a_path, whole
from lastlayer.core.names import look_up
from lastlayer.errors import MissingFileError, OptionError
from lastlayer.extraction.datasets.cifar import read_cifar
from lastlayer.extraction.datasets.core50 import read_core50
from lastlayer.extraction.datasets.cub200 import read_cub200
from lastlayer.extraction.datasets.image_folder import LAYOUT, read_folder
from lastlayer.extraction.datasets.images import ImageSet


@dataclass(frozen=True)
class Dataset:
    """What a name stands for."""

    description: str
    labels: tuple[str, ...]  # its label columns, the primary one first
    read: Callable[[Path], ImageSet]


DATASETS = {
    "cifar10": Dataset(
        "60,000 images of 32 × 32, official split", ("class",), partial(read_cifar, "cifar10")
    ),
    "cifar100": Dataset(
        "60,000 images of 32 × 32, official split",
        ("fine", "coarse"),
        partial(read_cifar, "cifar100"),
    ),
    "core50": Dataset(
        "frames of 128 × 128, sessions 3, 7 and 10 for testing",
        ("object", "category", "session"),
        read_core50,
    ),
    "cub200": Dataset("CUB-200-2011, official split", ("class",), read_cub200),
    "folder": Dataset(LAYOUT, ("class", "domain"), read_folder),
}


def read_images(
    name: str,
    root: str | os.PathLike[str],
    *,
    test: float | None = None,
    seed: int = 0,
    thin: int = 1,
) -> ImageSet:
    """List the images of a data set with their labels; none is decoded yet.

    Args:
        name: A name of ``DATASETS``; ``folder`` for images of your own.
        root: The folder that holds its official files, or your images.
        test: For a folder that is not split: the share of each class to draw as test.
        seed: Decides what is drawn.
        thin: Keep one in this many training images; 8 for Core50 in the paper.

    >>> read_images("folder", "nowhere")
    Traceback (most recent call last):
    ...
    lastlayer.errors.MissingFileError: there is no folder nowhere with the files of 'folder'
    """
    read = look_up(name, DATASETS, "data set").read
    folder, thin = a_path(root, "root"), whole(thin, "thin")
    if not os.path.isdir(folder):
        raise MissingFileError(f"there is no folder {root} with the files of '{name}'")
    if name == "folder":
        images = read_folder(folder, test, seed)
    elif test is not None:
        raise OptionError(f"{name} has a test set of its own: leave out the share to draw")
    else:
        images = read(folder)
    return images if thin == 1 else images.thin(thin, seed)
