"""How an image becomes a network's input: sizes and normalisations, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.extras import extra

if TYPE_CHECKING:
    from PIL.Image import Image

# Takes an RGB image of Pillow, or the pixels (3, h, w) uint8 of a data set that has no files.
Transform = Callable[[Any], Tensor]
Statistics = tuple[tuple[float, float, float], tuple[float, float, float]]  # mean, std

_BILINEAR = 2  # Pillow's number of it
IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# What the authors of the study normalised the images with, whatever the backbone.
AUTHORS: dict[str, Statistics] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2009, 0.1984, 0.2023)),
}


def normalise(images: Tensor, statistics: Statistics) -> Tensor:
    """Turn pixels 0…255 into the range that a network was trained on.

    >>> normalise(torch.full((1, 3, 1, 1), 255), ((1.0, 0.5, 0.5), (1.0, 1.0, 0.5))).flatten()
    tensor([0.0000, 0.5000, 1.0000])
    """
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in statistics)
    return (images / 255 - mean) / std


@dataclass(frozen=True)
class Prepare:
    """Bring an image to a size and normalise it.

    Pillow resizes, bilinear and smoothed, to the size itself, or so that the shorter side is
    ``shorter`` and the middle is cut out. Pixels that have the size already stay as they are.

    >>> pixels = torch.zeros(3, 32, 32, dtype=torch.uint8)
    >>> Prepare(32, IMAGENET)(pixels).shape
    torch.Size([3, 32, 32])
    """

    size: int  # height and width in the end
    statistics: Statistics
    shorter: int | None = None

    def __call__(self, image: Any) -> Tensor:
        """Make the tensor (3, size, size) of an RGB image of Pillow, or of pixels."""
        if not isinstance(image, Tensor):
            return normalise(to_pixels(self._resize(image)), self.statistics)
        if image.shape[1:] != (self.size, self.size):
            image = to_pixels(self._resize(to_pillow(image)))
        return normalise(image, self.statistics)

    def _resize(self, image: "Image") -> "Image":
        if self.shorter is None:
            return image.resize((self.size, self.size), _BILINEAR)
        scale = self.shorter / min(image.size)
        width, height = (max(self.shorter, int(scale * side)) for side in image.size)
        # Round half to even, as torchvision does: networks were trained on images cut out so.
        left, top = (round((side - self.size) / 2) for side in (width, height))
        resized = image.resize((width, height), _BILINEAR)
        return resized.crop((left, top, left + self.size, top + self.size))


def to_pixels(image: "Image") -> Tensor:
    """Return the pixels (3, h, w) uint8 of an RGB image."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def to_pillow(pixels: Any) -> "Image":
    """Return pixels as an image of Pillow; one that is an image already stays as it is."""
    if not isinstance(pixels, Tensor):
        return cast("Image", pixels)
    with extra("images", "resizing images"):
        from PIL import Image  # noqa: PLC0415  (an extra)
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
