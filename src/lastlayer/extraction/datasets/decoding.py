"""Any picture that Pillow opens becomes an upright RGB image of 8 bits."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lastlayer.core.extras import extra
from lastlayer.core.files import reading

if TYPE_CHECKING:
    from PIL.Image import Image

# What Pillow knows and people keep pictures in; everything else in a folder is left alone.
SUFFIXES = (
    ".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm", ".jp2",
)  # fmt: skip


def read_image(path: Path) -> "Image":
    """Open a file as an RGB image; one that cannot be read is named."""
    with extra("images", "reading image files"):
        from PIL import Image  # noqa: PLC0415  (an extra)
    with reading(path, "an image"), warnings.catch_warnings():
        # Pillow warns of pictures of more than 90 million pixels, and refuses twice as many.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path) as image:
            return to_rgb(image)


def to_rgb(image: "Image") -> "Image":
    """Turn a picture upright as its EXIF says, and give it 3 channels of 8 bits.

    Greyscale of 16 bits is scaled, not cut off; what is transparent becomes white.

    >>> from PIL import Image
    >>> to_rgb(Image.new("I;16", (1, 1), 65535)).getpixel((0, 0))
    (255, 255, 255)
    """
    from PIL import Image, ImageOps  # noqa: PLC0415  (an extra)

    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64).clip(0, 65535)
        return Image.fromarray((values // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers of unknown range")
    if image.mode in ("RGBA", "LA", "La", "PA", "RGBa") or "transparency" in image.info:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def gradient() -> "Image":
    """Draw a picture with all rows and columns different, to see what a transform does to it."""
    with extra("images", "making image files into features"):
        from PIL import Image  # noqa: PLC0415
    row, column = np.mgrid[:96, :128]
    return Image.fromarray(np.stack([2 * row, 2 * column, row + column], 2).astype(np.uint8))
