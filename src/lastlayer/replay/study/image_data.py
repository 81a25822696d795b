"""The images that networks are trained on end to end, and their tasks."""

from functools import cached_property
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


class ImageData(ImageSet):
    """A data set of small images, read whole: their pixels are tensors, not files."""

    @cached_property
    def fingerprint(self) -> str:
        """The digest of its content; a large one is read once."""
        return self.digest

    @property
    def origin(self) -> Origin:
        """Where they come from."""
        return Origin(self.name, BACKBONE, normalisation="authors")

    @property
    def in_features(self) -> int:
        """Pixels times channels."""
        return _pixels(self.train)[0].numel()

    def pool(self, label: str, device: torch.device) -> ImagePool:
        """Bring the images and their classes to a device, normalised as in the study."""
        mean, std = AUTHORS[self.name]
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
    return ImageData(**vars(read_images(dataset, root)))
