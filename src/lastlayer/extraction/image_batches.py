"""Images decoded and transformed batch by batch, in as many processes as wanted."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from lastlayer.errors import FileFormatError, MissingFileError, ReadError, ShapeError
from lastlayer.extraction.backbones.preparation import Transform
from lastlayer.extraction.datasets.decoding import gradient, read_image
from lastlayer.extraction.datasets.images import ImageSet

Item = tuple[int, Tensor | str]  # its row, and the image, or why it cannot be read


@dataclass(frozen=True)
class Batch:
    """Some images, ready for a network, and those that could not be read."""

    rows: Tensor  # (k,) int64, which images of the data set they are
    x: Tensor  # (k, channels, h, w)
    unreadable: tuple[str, ...] = ()  # why, with the file's name

    def pin_memory(self) -> "Batch":
        """Pin the memory for a quick copy to a GPU; PyTorch calls this."""
        return Batch(self.rows, self.x.pin_memory(), self.unreadable)


class Rows(Dataset[Item]):
    """The images of both splits by row, those for training first."""

    def __init__(self, images: ImageSet, transform: Transform) -> None:
        self.images = images
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    @property
    def on_disk(self) -> bool:
        """Whether images are files that have to be decoded."""
        return not isinstance(self.images.train.x, Tensor)

    def source(self, row: int) -> Path | Tensor:
        """Return the file of an image, or its pixels."""
        n = len(self.images.train)
        return self.images.train.x[row] if row < n else self.images.test.x[row - n]

    def name(self, row: int) -> str:
        """Name an image in a message."""
        source = self.source(row)
        return f"image {row}" if isinstance(source, Tensor) else str(source)

    def __getitem__(self, row: int) -> Item:
        source = self.source(row)
        if isinstance(source, Tensor):
            return row, self.transform(source)
        try:
            image = read_image(source)
        except (FileFormatError, MissingFileError, ReadError) as error:
            return row, str(error)  # a value, since it may be skipped
        return row, self.transform(image)


def make_example(transform: Transform, images: ImageSet) -> Tensor:
    """Return what a transform, which may be any code, makes of one fixed picture."""
    x = transform(images.train.x[0] if isinstance(images.train.x, Tensor) else gradient())
    if not isinstance(x, Tensor) or x.ndim < 2:
        found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"the transform must return a tensor (channels, …), got {found}")
    return x


def load(
    rows: Rows, batches: Sequence[Sequence[int]], workers: int, pinned: bool
) -> Iterator[Batch]:
    """Return the batches one after another, while the next ones are being made."""
    loader = DataLoader(
        rows,
        batch_sampler=[list(batch) for batch in batches],
        num_workers=workers,
        collate_fn=_collate,
        pin_memory=pinned,
        generator=torch.Generator(),  # else it would draw from everybody's random numbers
    )
    with warnings.catch_warnings():
        # PyTorch forks its workers, which decode and transform on one thread each. Python 3.12 and
        # later warn of any fork in a process that has threads, as every process with PyTorch has.
        warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
        made = iter(loader)
    for batch in made:
        if isinstance(batch, ShapeError):
            raise batch
        yield batch


def _collate(items: Sequence[Item]) -> Batch | ShapeError:
    """Stack images; an error is returned, because one raised in a worker would be wrapped."""
    good = [(row, x) for row, x in items if not isinstance(x, str)]
    unreadable = tuple(x for _, x in items if isinstance(x, str))
    shapes = list({tuple(x.shape) for _, x in good})
    if len(shapes) > 1:
        return ShapeError(
            "the transform must return tensors of one shape for all images, "
            f"got {shapes[0]} and {shapes[1]}: let it resize or crop them"
        )
    # PyTorch's own way of stacking writes straight into the memory that processes share.
    x = default_collate([x for _, x in good]) if good else torch.empty(0)
    return Batch(torch.tensor([row for row, _ in good], dtype=torch.int64), x, unreadable)
