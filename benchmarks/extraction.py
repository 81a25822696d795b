"""lastlayer's extraction beside a plain DataLoader loop: ratios, in one run, on the same images.

python benchmarks/extraction.py         # needs the extra images; without torchvision, only loading

Both decode the same JPEG files with the same transform, workers, batch size and weights. The plain
loop keeps features in memory; ours also turns images upright, checks and writes them part by part.
The first network costs nothing: there only the loading of images counts.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line sets it

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import lastlayer as ll
from lastlayer.extraction import Images, ImageSet
from lastlayer.extraction.backbones.by_name import BACKBONES
from lastlayer.extraction.backbones.preparation import IMAGENET, Prepare

PREPARE = Prepare(224, IMAGENET)


class Pictures(Dataset[Tensor]):
    """Extract features as one would write it by hand."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        return PREPARE(Image.open(self.paths[row]).convert("RGB"))


def plain(paths: list[Path], network: nn.Module, workers: int, batch_size: int) -> Tensor:
    loader = DataLoader(Pictures(paths), batch_size=batch_size, num_workers=workers)
    with torch.inference_mode():
        return torch.cat([network(x) for x in loader])


def ours(paths: list[Path], network: nn.Module, workers: int, batch_size: int) -> Tensor:
    n = len(paths) // 2
    parts = (
        Images(part, {"class": torch.zeros(len(part)).long()}) for part in (paths[:n], paths[n:])
    )
    images = ImageSet("benchmark", *parts, {"class": ("all",)})
    data = ll.extract(
        images, network, PREPARE, paths[0].parent / "z.safetensors",
        dtype="float32", workers=workers, batch_size=batch_size, device="cpu",
    )  # fmt: skip
    return torch.cat([data.train.z, data.test.z])


def write_pictures(folder: Path, n: int) -> list[Path]:
    """Make a JPEG with as much detail as a photograph: noise on a gradient."""
    rng = np.random.default_rng(0)
    slope = np.mgrid[:375, :500].sum(0)[..., None] * 0.25
    paths = [folder / f"{number}.jpg" for number in range(n)]
    for path in paths:
        pixels = (slope + rng.normal(0, 25, (375, 500, 3))).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=90)
    return paths


def networks() -> dict[str, tuple[nn.Module, nn.Module]]:
    """Return each network as one would load it and as lastlayer does, with the same weights."""
    pooled = nn.Sequential(nn.AvgPool2d(56), nn.Flatten())
    found: dict[str, tuple[nn.Module, nn.Module]] = {"none": (pooled, pooled)}
    try:
        from torchvision.models import resnet18  # noqa: PLC0415
    except ImportError:
        return found
    theirs, own = resnet18(weights=None), BACKBONES["resnet18"].build()
    theirs.fc = nn.Identity()
    own.load_state_dict(theirs.state_dict())
    return found | {"ResNet-18": (theirs.eval(), own.eval())}


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Measure seconds on the clock and of all cores, workers included."""
    before = os.times()
    work()
    after = os.times()
    return after.elapsed - before.elapsed, sum(after[:4]) - sum(before[:4])


def take_turns(*ways: Callable[[], object], repeats: int) -> list[list[tuple[float, float]]]:
    """Time the sides in turn, so that other work on the machine affects all alike."""
    return [[seconds(way) for way in ways] for _ in range(repeats)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    how = (options.workers, options.batch_size)
    print(f"{options.images} JPEG files of 500 × 375, {how[0]} workers, batches of {how[1]}")
    with tempfile.TemporaryDirectory() as folder:
        paths = write_pictures(Path(folder), options.images)
        for name, (theirs, network) in networks().items():
            work = partial(plain, paths, theirs, *how), partial(ours, paths, network, *how)
            assert torch.allclose(*(way() for way in work), atol=1e-3)
            turns = take_turns(*work, repeats=options.repeats)
            clock, cores = (
                statistics.median(loop[i] / own[i] for loop, own in turns) for i in (0, 1)
            )
            speed = max(options.images / own[0] for _, own in turns)
            print(
                f"network: {name:>9} | ours {speed:5.0f} images/s | times the plain loop's speed: "
                f"{clock:.2f} on the clock, {cores:.2f} in work of all cores (medians)"
            )


if __name__ == "__main__":
    main()
