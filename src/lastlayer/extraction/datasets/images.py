"""Images that are not decoded yet, with their labels: what a data set's reader returns."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from lastlayer.core import tensor_files
from lastlayer.core.checks import expect, whole
from lastlayer.core.tensors import check_dense
from lastlayer.data.feature_set import check_column
from lastlayer.errors import DataError, ShapeError


@dataclass(frozen=True)
class Images:
    """The images of one split."""

    x: Tensor | Sequence[Path]  # pixels (n, 3, h, w) uint8, or one file per image
    labels: Mapping[str, Tensor]  # each (n,) int64

    def __post_init__(self) -> None:
        """Check that there is a label for each image."""
        expect(self.x, (Tensor, Sequence), "images", "pixels or a list of files")
        expect(self.labels, Mapping, "labels", "a table of names and tensors")
        if isinstance(self.x, Tensor):
            check_dense(self.x, "pixels")
            if self.x.dim() != 4:
                raise ShapeError(
                    f"pixels must be (n, channels, height, width), got {tuple(self.x.shape)}"
                )
        for name, column in self.labels.items():
            check_column(name, column, len(self.x))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def label(self) -> str:
        """The primary label column: the first."""
        return next(iter(self.labels))

    def take(self, rows: Tensor) -> "Images":
        """Return some of them, in the order of ``rows``."""
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
        expect(self.name, str, "name", "the name of a data set")
        for part in (self.train, self.test):
            expect(part, Images, "a split", "Images")
        expect(self.names, Mapping, "names", "a table of columns and the names of their classes")
        for split, images in (("training", self.train), ("test", self.test)):
            if not len(images):
                raise DataError(f"the data set '{self.name}' must have {split} images, got none")

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
        by = whole(by, "thin", least=1, most=n)
        seed = whole(seed, "a seed", least=-(2**63), most=2**64 - 1)
        drawn = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[: n // by]
        return replace(self, train=self.train.take(drawn.sort().values))

    @property
    def digest(self) -> str:
        """Return a digest of the images and labels: pixels by content, files by their names."""
        content = hashlib.sha256(self.name.encode())
        for images in (self.train, self.test):
            content.update(tensor_files.fingerprint(images.labels).encode())
            if isinstance(images.x, Tensor):
                content.update(tensor_files.fingerprint({"x": images.x}).encode())
        splits = (images.x for images in (self.train, self.test))
        files = [path for x in splits if not isinstance(x, Tensor) for path in x]
        # Relative to the folder that they share, so that it may be moved.
        top = len(os.path.commonpath(files)) if files else 0
        for path in files:
            content.update(f"{path.as_posix()[top:]}\n".encode())
        return content.hexdigest()
