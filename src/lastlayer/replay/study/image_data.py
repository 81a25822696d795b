"""The images that networks are trained on end to end, and their tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from lastlayer.core.names import look_up
from lastlayer.data.features import Origin
from lastlayer.errors import OptionError
from lastlayer.extraction.backbones.preparation import AUTHORS
from lastlayer.extraction.datasets.cifar import HOME
from lastlayer.extraction.datasets.images import Images, ImageSet
from lastlayer.extraction.datasets.readers import read_images
from lastlayer.replay.training.image_pool import ImagePool, make_image_pool

BACKBONE = "resnet20"


@dataclass(frozen=True, eq=False)
class ImageData:
    """A data set of small images, read whole: their pixels are tensors, not files."""

    images: ImageSet
    fingerprint: str

    @property
    def train(self) -> Images:
        """The training images."""
        return self.images.train

    @property
    def test(self) -> Images:
        """The test images."""
        return self.images.test

    @property
    def names(self) -> Mapping[str, Sequence[str]]:
        """The name of each class, per label column."""
        return self.images.names

    @property
    def origin(self) -> Origin:
        """Where they come from."""
        return Origin(self.images.name, BACKBONE, normalisation="authors")

    @property
    def in_features(self) -> int:
        """Pixels times channels."""
        return _pixels(self.train)[0].numel()

    def pool(self, label: str, device: torch.device) -> ImagePool:
        """Bring the images and their classes to a device, normalised as in the study."""
        mean, std = AUTHORS[self.images.name]
        x, test_x = _pixels(self.train), _pixels(self.test)
        y, test_y = self.train.labels[label], self.test.labels[label]
        return make_image_pool(x, y, test_x, test_y, mean=mean, std=std).to(device)


def _pixels(images: Images) -> Tensor:
    """Return the images of a data set that fits in memory."""
    return cast(Tensor, images.x)


def read_image_data(dataset: str, root: Path | None) -> ImageData:
    """Read the images of a data set from the folder of its official files."""
    look_up(dataset, AUTHORS, "data set of images of one size")
    if root is None:
        raise OptionError(
            f"networks are trained on the images themselves: pass the folder of {dataset}'s "
            "official files with --root DIR (python or binary version, unpacked there, "
            f"from {HOME})"
        )
    images = read_images(dataset, root)
    return ImageData(images, images.digest)
