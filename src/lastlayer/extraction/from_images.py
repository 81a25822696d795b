"""Compute the features of images on a frozen network, and write them to a file.

Images are decoded and transformed batch by batch, in as many processes as wanted.
"""

import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from lastlayer.core import tensor_files
from lastlayer.core.checks import a_path, expect, kind_of, whole
from lastlayer.core.devices import choose_device
from lastlayer.core.names import look_up
from lastlayer.core.progress import Tell
from lastlayer.data.feature_set import FeatureSet
from lastlayer.data.features import Features, Origin
from lastlayer.errors import (
    ArgumentError,
    FileFormatError,
    MissingFileError,
    OptionError,
    ReadError,
    ShapeError,
)
from lastlayer.extraction.backbones.by_name import load_backbone
from lastlayer.extraction.backbones.preparation import Transform
from lastlayer.extraction.datasets.decoding import gradient, read_image
from lastlayer.extraction.datasets.images import ImageSet
from lastlayer.extraction.datasets.readers import read_images
from lastlayer.extraction.parts import DECODING, DTYPES, Make, Parts, Piece, fill, fill_on_ray

# In one go on a CPU: the outputs of layers then fit into memory that is used again and again;
# larger ones are asked of the system anew each time, which can take longer than the layer itself.
_PIXELS = 1 << 19
MOST_WORKERS = 256

Item = tuple[int, Tensor | str]  # its row, and the image, or why it cannot be read


def extract(
    images: ImageSet,
    network: nn.Module,
    transform: Transform,
    out: str | os.PathLike[str],
    *,
    origin: Origin | None = None,
    dtype: str = "float16",
    precision: str = "full",
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    broken: str = "stop",
    ray: str | None = None,
    progress: Tell = lambda done, total: None,
) -> Features:
    """Push images through a frozen network, and keep what comes out as a features file.

    Finished parts are kept in a folder beside ``out`` until all are done: call it again to resume
    an interrupted extraction.

    Args:
        images: From ``read_images``, or put together by hand.
        network: Any module that maps a batch of images to features (n, …); it is put into
            evaluation mode, and on the device.
        transform: Makes of one image the tensor that the network takes: of an RGB image of Pillow,
            or of pixels (3, h, w) uint8 where the data set has no image files, as CIFAR.
        out: The features file to write.
        origin: What is to be said of where the features come from.
        dtype: ``float16`` or ``float32``, how the features are kept.
        precision: ``full``, or ``mixed``: half precision on a GPU where that is safe.
        batch_size: Images in one go; if not given, 128 on a GPU, and on a CPU about ten of
            224 × 224, for there large batches are slower.
        workers: Processes that decode images; one per core, at most 8, none on one, if not given.
        device: ``cpu``, ``cuda``, or ``auto``: a GPU where there is one.
        broken: ``stop`` at an image that cannot be read, or ``skip`` it with a warning.
        ray: The address of a Ray cluster whose nodes make the parts, ``auto``, or ``local``; all
            of them must see the images and the folder of ``out``. ``workers`` are then those of
            each task; if not given, one per core that there is for each GPU, at most 8, and none
            without GPUs.
        progress: Called after each batch.

    >>> import tempfile
    >>> from lastlayer.extraction import Images
    >>> some = Images(torch.zeros(2, 3, 8, 8).byte(), {"class": torch.tensor([0, 1])})
    >>> images = ImageSet("toy", train=some, test=some, names={"class": ("cat", "dog")})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     extract(images, nn.Flatten(), lambda pixels: pixels / 255, f"{folder}/toy.safetensors")
    Features(2 train, 2 test, 192 features, labels: class (2))
    """
    expect(images, ImageSet, "images", "an ImageSet, as read_images returns")
    expect(network, nn.Module, "network", "an nn.Module")
    expect(origin, (Origin, type(None)), "origin", "an Origin")
    for name, function in (("transform", transform), ("progress", progress)):
        if not callable(function):
            raise ArgumentError(f"{name} must be a function, got {kind_of(function)}")
    place = a_path(out, "out")
    kept = look_up(dtype, DTYPES, "type of features")
    skip = look_up(broken, {"stop": False, "skip": True}, "choice for broken images")
    example = make_example(transform, images)
    if batch_size is not None:
        batch_size = whole(batch_size, "a batch size", least=1)
    if workers is not None:
        workers = whole(workers, "workers", least=0, most=MOST_WORKERS)
    prepare = _Prepare(
        Rows(images, transform), network, max(1, example[0].numel()),
        device, precision, kept, skip, workers, batch_size,
    )  # fmt: skip
    # What cannot be is said before the work.
    prepared = None if ray is not None else prepare(os.cpu_count() or 1)
    weights = tensor_files.fingerprint(network.state_dict())
    setting = {
        "images": images.digest,
        "network": hashlib.sha256(f"{network}{weights}".encode()).hexdigest(),
        "transform": tensor_files.fingerprint({"example": example}),
        "dtype": dtype,
        "precision": precision,
    }
    parts = Parts(place.absolute(), setting, len(images))
    if prepared is not None:
        fill(parts, *prepared, progress)
    else:
        files = list(images.train.x[:1]) if prepare.rows.on_disk else []
        if not files and workers is None:
            workers = 0
        how: dict[str, Any] = {"files": files, "device": device, "workers": workers}
        fill_on_ray(str(ray), parts, prepare, progress, **how)
    origin = origin or Origin(dataset=images.name, backbone=type(network).__name__)
    data = _join(parts, images, replace(origin, weights=weights))
    data.save(place)
    parts.remove()
    return data


def extract_named(
    dataset: str,
    root: str | os.PathLike[str],
    backbone: str,
    out: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    normalisation: str | None = None,
    test: float | None = None,
    thin: int = 1,
    seed: int = 0,
    dtype: str = "float16",
    precision: str = "full",
    **how: Any,
) -> Features:
    """Read a data set's images and push them through a backbone, as ``extract`` does.

    What is read is as ``read_images`` takes it, the backbone and its weights as ``load_backbone``.
    The normalisation is ``authors`` as in the study, or ``trained`` as the backbone was trained
    with; if not given, the former where there is one.
    """
    images = read_images(dataset, root, test=test, seed=seed, thin=thin)
    network, preparations = load_backbone(backbone, weights, dataset)
    normalisation = normalisation or next(iter(preparations))
    transform = look_up(normalisation, preparations, f"normalisation for {dataset} on {backbone}")
    # The command that makes these features again, with no path of this machine in it.
    options = {
        "--root": "ROOT", "--backbone": backbone, "--weights": weights and "WEIGHTS",
        "--normalisation": normalisation, "--test": test, "--thin": thin if thin > 1 else None,
        "--seed": seed or None, "--dtype": dtype,
        "--precision": precision if precision != "full" else None, "--out": "FILE",
    }  # fmt: skip
    words = (f"{name} {value}" for name, value in options.items() if value is not None)
    origin = Origin(
        dataset=dataset,
        backbone=backbone,
        normalisation=normalisation,
        made=" ".join(["lastlayer extract", dataset, *words]),
    )
    return extract(
        images, network, transform, out, origin=origin, dtype=dtype, precision=precision, **how
    )


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


class Frozen:
    """A network on ``cpu``, ``cuda`` or ``auto``, to compute in ``full`` or ``mixed`` precision.

    >>> frozen = Frozen(nn.Flatten(), device="cpu", precision="full")
    >>> frozen(torch.zeros(2, 3, 4, 4)).shape
    torch.Size([2, 48])
    """

    def __init__(self, network: nn.Module, device: str, precision: str) -> None:
        self.device = choose_device(device)
        self.on_gpu = self.device.type == "cuda"
        self.mixed = look_up(precision, {"full": False, "mixed": True}, "precision")
        if self.mixed and not self.on_gpu:
            raise OptionError("mixed precision needs a GPU: use precision 'full' on a CPU")
        self.network = network.to(self.device).eval()

    def __call__(self, x: Tensor) -> Tensor:
        """Map images (n, …) to features (n, h), on the CPU."""
        with torch.inference_mode(), torch.autocast("cuda", torch.float16, enabled=self.mixed):
            z = self.network(x.to(self.device, non_blocking=True))
        if not isinstance(z, Tensor) or z.ndim < 2 or len(z) != len(x):
            found = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise ShapeError(
                f"the network must return features of shape ({len(x)}, h), got {found}: wrap it "
                "in a module that returns one row of features for each image"
            )
        return z.flatten(1).float().cpu()


@dataclass(frozen=True)
class _Prepare:
    """Gets ready to make features, here or on a node of a cluster."""

    rows: Rows
    network: nn.Module
    pixels: int  # of an image
    device: str
    precision: str
    dtype: torch.dtype
    skip: bool
    workers: int | None
    batch_size: int | None

    def __call__(self, cores: int) -> tuple[Make, int]:
        workers = self.workers
        if workers is None:
            workers = min(DECODING, cores) if cores > 1 and self.rows.on_disk else 0
        frozen = Frozen(self.network, self.device, self.precision)
        usual = 128 if frozen.on_gpu else max(1, _PIXELS // self.pixels)
        return partial(self._pieces, frozen, workers), self.batch_size or usual

    def _pieces(self, frozen: Frozen, workers: int, batches: Sequence[range]) -> Iterator[Piece]:
        for batch in load(self.rows, batches, workers, pinned=frozen.on_gpu):
            if batch.unreadable and not self.skip:
                raise FileFormatError(
                    f"{batch.unreadable[0]}; repair or remove it, or skip broken images"
                )
            z = frozen(batch.x) if len(batch.rows) else torch.empty(0, 0)
            yield Piece.of(batch.rows, z, self.dtype, self.rows.name, batch.unreadable)


def _join(parts: Parts, images: ImageSet, origin: Origin) -> Features:
    """Put the parts together, with the labels of the images that could be read."""
    made = parts.join()
    if made.unreadable:
        few = "; ".join(made.unreadable[:5])
        warnings.warn(f"left out {len(made.unreadable)} broken images: {few}", stacklevel=3)
    n = len(images.train)
    in_train = made.rows < n
    train = FeatureSet(made.z[in_train], images.train.take(made.rows[in_train]).labels)
    test = FeatureSet(made.z[~in_train], images.test.take(made.rows[~in_train] - n).labels)
    return Features(train, test, images.names, origin)


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
