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
from lastlayer.scenarios import Scenario
from lastlayer.scenarios.spec import ScenarioSpec

BACKBONE = "resnet20"


@dataclass(frozen=True)
class Labels:
    """The labels of one split, as a scenario expects them."""

    labels: Mapping[str, Tensor]
    label: str  # the primary column

    def __len__(self) -> int:
        return len(self.labels[self.label])


@dataclass(frozen=True, eq=False)
class ImageData:
    """A data set of small images, read whole: their pixels are tensors, not files."""

    images: ImageSet
    fingerprint: str

    @property
    def train(self) -> Labels:
        """The labels of the training images."""
        return self._labels(self.images.train)

    @property
    def test(self) -> Labels:
        """The labels of the test images."""
        return self._labels(self.images.test)

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
        return _pixels(self.images.train)[0].numel()

    def scenario(self, spec: ScenarioSpec, order: int = 0) -> Scenario:
        """Lay out the tasks."""
        return spec.build(self, order)

    def pool(self, label: str, device: torch.device) -> ImagePool:
        """Bring the images and their classes to a device, normalised as in the study."""
        mean, std = AUTHORS[self.images.name]
        train, test = self.images.train, self.images.test
        return make_image_pool(
            _pixels(train),
            train.labels[label],
            _pixels(test),
            test.labels[label],
            mean=mean,
            std=std,
        ).to(device)

    def _labels(self, images: Images) -> Labels:
        return Labels(images.labels, next(iter(self.images.names)))


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
