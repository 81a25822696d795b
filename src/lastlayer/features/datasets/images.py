"""Images that are not decoded yet, with their labels: what a data set's reader gives."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from lastlayer import files
from lastlayer.errors import DataError, OptionError


@dataclass(frozen=True)
class Images:
    """The images of one split."""

    x: Tensor | Sequence[Path]  # pixels (n, 3, h, w) uint8, or one file per image
    labels: Mapping[str, Tensor]  # each (n,) int64

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Tensor) -> "Images":
        """Give some of them, in the order of ``rows``."""
        x = self.x[rows] if isinstance(self.x, Tensor) else [self.x[row] for row in rows.tolist()]
        return Images(x, {column: labels[rows] for column, labels in self.labels.items()})


@dataclass(frozen=True, repr=False)
class ImageSet:
    """A data set: its two splits, and what the labels mean."""

    name: str
    train: Images
    test: Images
    names: Mapping[str, tuple[str, ...]]  # per label column, the name of each class

    def __post_init__(self) -> None:
        """Refuse a split without images."""
        for split, images in (("training", self.train), ("test", self.test)):
            if not len(images):
                raise DataError(f"expected {split} images in the data set '{self.name}', got none")

    def __len__(self) -> int:
        return len(self.train) + len(self.test)

    def __repr__(self) -> str:
        columns = (f"{column} ({len(names)})" for column, names in self.names.items())
        return (
            f"ImageSet({self.name}: {len(self.train)} train, {len(self.test)} test, "
            f"labels: {', '.join(columns)})"
        )

    def thin(self, by: int, seed: int = 0) -> "ImageSet":
        """Keep one in ``by`` of the training images, drawn at random; the test set stays whole."""
        n = len(self.train)
        if not 1 <= by <= n:
            raise OptionError(f"expected to thin {n} training images by 1 to {n}, got {by}")
        if not -(2**63) <= seed < 2**64:
            raise OptionError(f"expected a seed of at most 64 bits, got {seed}")
        drawn = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[: n // by]
        return replace(self, train=self.train.take(drawn.sort().values))

    @property
    def digest(self) -> str:
        """Name the images and their labels: pixels by content, files by their names."""
        content = hashlib.sha256(self.name.encode())
        for images in (self.train, self.test):
            content.update(files.fingerprint(images.labels).encode())
            if isinstance(images.x, Tensor):
                content.update(files.fingerprint({"x": images.x}).encode())
        for name in relative_names(self._files()):
            content.update(f"{name}\n".encode())
        return content.hexdigest()

    def _files(self) -> list[Path]:
        splits = (images.x for images in (self.train, self.test))
        return [path for x in splits if not isinstance(x, Tensor) for path in x]


def relative_names(paths: Sequence[Path]) -> Iterable[str]:
    """Name files below the folder that they share, so that it may be moved."""
    top = len(os.path.commonpath(paths)) if paths else 0
    return (path.as_posix()[top:] for path in paths)
