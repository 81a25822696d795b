"""The images that networks are trained and tested on: kept as bytes, normalised batch by batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lastlayer.errors import DataError, LabelError, OptionError, ShapeError

# (n, channels, height, width), or n of (channels, height, width)
Images = Tensor | Sequence[Tensor]


@dataclass(frozen=True)
class ImagePool:
    """Labelled images, all of one size, and how they are normalised."""

    x: Tensor  # (n, channels, height, width) uint8, or floating
    y: Tensor  # (n,) int64 below n_classes
    test_x: Tensor  # (m, channels, height, width)
    test_y: Tensor  # (m,)
    n_classes: int
    scale: Tensor  # (1, channels, 1, 1): a network sees scale · x + shift
    shift: Tensor  # its type is the one that networks compute in

    def batch(self, rows: Tensor) -> Tensor:
        """Return the training images of some rows as a network sees them."""
        return self.normalised(self.x[rows])

    def normalised(self, x: Tensor) -> Tensor:
        """Return images (n, channels, height, width) as a network sees them."""
        return torch.addcmul(self.shift, x.to(self.shift.dtype), self.scale)

    def to(self, device: torch.device) -> "ImagePool":
        """Bring everything to a device."""
        own = (self.x, self.y, self.test_x, self.test_y)
        x, y, test_x, test_y = (part.to(device) for part in own)
        scale, shift = self.scale.to(device), self.shift.to(device)
        return ImagePool(x, y, test_x, test_y, self.n_classes, scale, shift)


def make_image_pool(
    x: Images,
    y: Tensor,
    test_x: Images,
    test_y: Tensor,
    *,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    dtype: torch.dtype = torch.float32,
) -> ImagePool:
    """Check images, bytes (0 to 255) or floating (0 to 1), and labels, and put them together.

    The mean, one a channel or one for all, is subtracted once bytes are divided by 255, and the
    result is divided by ``std``. Networks compute in the type ``dtype``.
    """
    x, test_x = _stacked(x, "training"), _stacked(test_x, "test")
    if x.shape[1:] != test_x.shape[1:] or x.dtype != test_x.dtype:
        raise ShapeError(
            "training and test images must have one size and type, "
            f"got {tuple(x.shape[1:])} {x.dtype} and {tuple(test_x.shape[1:])} {test_x.dtype}"
        )
    if not (x.dtype == torch.uint8 or x.is_floating_point()):
        raise DataError(f"images must be bytes (uint8) or floating-point numbers, got {x.dtype}")
    y, test_y = _labels(y, x, "training"), _labels(test_y, test_x, "test")
    channels = x.shape[1]
    if not {len(mean), len(std)} <= {1, channels} or not all(0 < s < math.inf for s in std):
        raise OptionError(
            f"mean and std (above 0) must have 1 or {channels} numbers, got {mean} and {std}"
        )
    spread = torch.tensor(std, dtype=dtype).expand(channels).view(1, -1, 1, 1)
    centre = torch.tensor(mean, dtype=dtype).expand(channels).view(1, -1, 1, 1)
    white = 255 if x.dtype == torch.uint8 else 1
    n_classes = 1 + int(max(y.max(), test_y.max()))
    return ImagePool(x, y, test_x, test_y, n_classes, 1 / (white * spread), -centre / spread)


def _stacked(images: Images, split: str) -> Tensor:
    """Make one tensor of images, which must all have the same size."""
    if not isinstance(images, Tensor):
        images = [torch.as_tensor(image) for image in images]
        sizes = sorted({tuple(image.shape) for image in images})
        if len(sizes) != 1:
            raise ShapeError(
                f"{split} images must have one size, got {sizes or 'none'}: resize them first"
            )
        types = sorted({str(image.dtype) for image in images})
        if len(types) != 1:
            raise DataError(f"{split} images must have one type, got {types}")
        images = torch.stack(images)
    if images.dim() != 4 or not images.numel():
        raise ShapeError(
            f"{split} images must be (n, channels, height, width), got {tuple(images.shape)}"
        )
    if images.is_floating_point() and not bool(images.isfinite().all()):
        raise DataError(f"{split} images must be finite, got NaN or infinity")
    return images


def _labels(y: Tensor, x: Tensor, split: str) -> Tensor:
    try:
        y = torch.as_tensor(y)
    except (TypeError, ValueError) as error:  # such as text
        raise LabelError(f"{split} labels must be integers from 0: {error}") from None
    if y.shape != x.shape[:1]:
        raise ShapeError(f"{split} labels must be ({len(x)},), got {tuple(y.shape)}")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise LabelError(f"{split} labels must be integers from 0, got {y.dtype}")
    if int(y.min()) < 0:
        raise LabelError(f"{split} labels must be at least 0, got {int(y.min())}")
    return y.long()
