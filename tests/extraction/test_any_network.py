"""Any network with any transform: what it gives is kept, and interrupted work goes on."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.pictures import tree
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.core import tensor_files
from lastlayer.errors import (
    DataError,
    FileFormatError,
    LastLayerError,
    OptionError,
    ShapeError,
    WriteError,
)
from lastlayer.extraction import ImageSet, parts
from lastlayer.extraction.datasets.decoding import read_image

N = 12  # images


def pixels(image: Any) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SIZE", 5)


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    tree(tmp_path / "root", *(f"{c}/{n}.png" for c in ("emu", "owl") for n in range(N // 2)))
    return ll.read_images("folder", tmp_path / "root", test=0.5)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "mine.safetensors"


class Counting(nn.Module):
    """Gives the mean of each channel, and stops after some images, as a power failure would."""

    def __init__(self, stop: float = float("inf")) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.seen, self.stop = 0, stop

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        if self.seen > self.stop:
            raise KeyboardInterrupt
        return self.scale * x.mean((2, 3))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_features_are_what_the_network_gives(
    images: ImageSet, out: Path, workers: int, batch_size: int
) -> None:
    data = ll.extract(
        images, Counting(), pixels, out,
        dtype="float32", workers=workers, batch_size=batch_size, device="cpu",
    )  # fmt: skip
    for split, source in ((data.train, images.train), (data.test, images.test)):
        expected = torch.stack([pixels(read_image(path)).mean((1, 2)) for path in source.x])
        assert torch.allclose(split.z, expected)
        assert torch.equal(split.y, source.labels["class"])
    assert (data.origin.dataset, data.origin.backbone) == ("folder", "Counting")
    assert ll.load_features(out).fingerprint == data.fingerprint
    assert sorted(os.listdir(out.parent)) == ["mine.safetensors", "root"]


def test_a_network_in_training_is_put_into_evaluation(images: ImageSet, out: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.5)).train()
    one = ll.extract(images, network, pixels, out, workers=0)
    two = ll.extract(images, network, pixels, out, workers=0)
    assert one.fingerprint == two.fingerprint


def test_random_numbers_of_others_are_left_alone(images: ImageSet, out: Path) -> None:
    before = torch.random.get_rng_state()
    ll.extract(images, Counting(), pixels, out, workers=2)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("stop", [1, 5, 7, 11])
def test_interrupted_work_goes_on(images: ImageSet, out: Path, stop: int) -> None:
    whole = ll.extract(images, Counting(), pixels, out, workers=0).fingerprint
    out.unlink()
    with pytest.raises(KeyboardInterrupt):
        ll.extract(images, Counting(stop), pixels, out, workers=0, batch_size=1)
    assert not out.exists()
    seen: list[tuple[int, int]] = []
    network = Counting()
    again = ll.extract(
        images, network, pixels, out,
        workers=0, batch_size=4, progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert network.seen == N - stop // 5 * 5
    assert seen[-1] == (N, N)
    assert again.fingerprint == whole
    assert not out.with_name("mine.safetensors.parts").exists()


def begin(images: ImageSet, out: Path) -> Path:
    """Leave an extraction after its first part."""
    with pytest.raises(KeyboardInterrupt):
        ll.extract(images, Counting(5), pixels, out, workers=0, batch_size=1)
    return out.with_name("mine.safetensors.parts")


def test_another_setting_is_refused_and_named(images: ImageSet, out: Path) -> None:
    folder = begin(images, out)
    other = Counting()
    other.scale.data += 1
    changes: list[tuple[str, Callable[[], object]]] = [
        ("network", lambda: ll.extract(images, other, pixels, out)),
        ("transform", lambda: ll.extract(images, Counting(), lambda x: pixels(x) * 2, out)),
        ("dtype", lambda: ll.extract(images, Counting(), pixels, out, dtype="float32")),
        ("images", lambda: ll.extract(images.thin(2), Counting(), pixels, out)),
    ]
    for what, work in changes:
        with pytest.raises(OptionError, match=f"another setting of {what}: .*remove the folder"):
            work()
    assert folder.exists()
    assert len(ll.extract(images, Counting(), pixels, out).train) == N // 2


def test_a_part_that_was_altered_is_not_taken(images: ImageSet, out: Path) -> None:
    part = next(begin(images, out).iterdir())
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(FileFormatError, match=r"truncated.*; remove .*: it will be made again"):
        ll.extract(images, Counting(), pixels, out)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_stops_or_is_skipped(images: ImageSet, out: Path, workers: int) -> None:
    broken = [Path(images.train.x[0]), Path(images.test.x[-1])]
    for path in broken:
        path.write_bytes(b"no image")
    with pytest.raises(FileFormatError, match=rf"{broken[0]} is not one, or.*repair or remove it"):
        ll.extract(images, Counting(), pixels, out, workers=workers)
    with pytest.warns(UserWarning, match=rf"left out 2 broken images: .*{broken[0]} .*{broken[1]}"):
        data = ll.extract(images, Counting(), pixels, out, workers=workers, broken="skip")
    assert torch.equal(data.train.y, images.train.labels["class"][1:])
    assert torch.equal(data.test.y, images.test.labels["class"][:-1])


def test_what_was_skipped_before_an_interruption_is_named(images: ImageSet, out: Path) -> None:
    Path(images.train.x[0]).unlink()
    with pytest.raises(KeyboardInterrupt):
        ll.extract(images, Counting(6), pixels, out, workers=0, batch_size=1, broken="skip")
    with pytest.warns(UserWarning, match="left out 1 broken images: no such file: "):
        ll.extract(images, Counting(), pixels, out, workers=0, broken="skip")


def test_a_whole_part_may_be_broken(images: ImageSet, out: Path) -> None:
    for path in images.train.x:
        Path(path).write_bytes(b"")
    with pytest.raises(DataError), pytest.warns(UserWarning, match="left out 6 broken"):
        ll.extract(images, Counting(), pixels, out, broken="skip")


def test_a_full_disk(images: ImageSet, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(tensor_files, "save_file", full)
        with pytest.raises(WriteError, match=r"No space left .*make room, then rerun"):
            ll.extract(images, Counting(), pixels, out, workers=0)
    assert os.listdir(out.with_name("mine.safetensors.parts")) == []
    assert len(ll.extract(images, Counting(), pixels, out, workers=0).train) == N // 2


class Odd(nn.Module):
    def __init__(self, give: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.give = give

    def forward(self, x: Tensor) -> object:
        return self.give(x)


@pytest.mark.parametrize(
    ("give", "error", "message"),
    [
        (lambda x: x.mean(), ShapeError, r"must return features of shape \(12, h\), got \(\)"),
        (lambda x: {"z": x}, ShapeError, "got dict: wrap it in a module"),
        (
            lambda x: x.flatten(1) / 0,
            DataError,
            r"png gets NaN or infinity: keep them as",
        ),
        (lambda x: x.flatten(1) + 1e5, DataError, "too large for float16"),
    ],
)
def test_networks_that_give_no_features(
    images: ImageSet,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    give: Callable[[Tensor], object],
    error: type[LastLayerError],
    message: str,
) -> None:
    monkeypatch.setattr(parts, "SIZE", N)
    with pytest.raises(error, match=message):
        ll.extract(images, Odd(give), pixels, out, workers=0)


@pytest.mark.parametrize("workers", [0, 1])
def test_transforms_that_give_no_batch(images: ImageSet, out: Path, workers: int) -> None:
    with pytest.raises(ShapeError, match=r"must return a tensor \(channels, …\), got Image"):
        ll.extract(images, Counting(), lambda image: image, out, workers=workers)
    sizes = iter(range(1, 100))

    def growing(image: Any) -> Tensor:
        return torch.zeros(3, 2, next(sizes))

    with pytest.raises(ShapeError, match=r"one shape for all images, got \(3, 2, .*resize or crop"):
        ll.extract(images, Counting(), growing, out, workers=workers)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_same_features_and_nearly_so_in_mixed_precision(
    images: ImageSet, out: Path
) -> None:
    network = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AvgPool2d(4))
    cpu, gpu, mixed = (
        ll.extract(
            images, network, pixels, out, dtype="float32", device=device, precision=precision
        )
        for device, precision in (("cpu", "full"), ("cuda", "full"), ("cuda", "mixed"))
    )
    assert torch.allclose(cpu.train.z, gpu.train.z, atol=1e-3)
    assert torch.allclose(cpu.train.z, mixed.train.z, atol=1e-2)
    assert not torch.equal(gpu.train.z, mixed.train.z)
