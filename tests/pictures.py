"""Small image files in the layouts of the data sets, and of every kind that Pillow writes."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, size: tuple[int, int] = (8, 6)) -> Image.Image:
    """A picture of random pixels, ``size`` as width and height."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def write(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(seed).save(path)
    return path


def core50(root: Path, frames: int = 1, objects: Iterable[int] = range(1, 51)) -> Path:
    """The tree of core50_128x128.zip, with few frames, their numbers not ascending on disk."""
    for session in range(1, 12):
        for number in objects:
            for frame in reversed(range(frames)):
                name = f"C_{session:02}_{number:02}_{frame:03}.png"
                write(root / "core50_128x128" / f"s{session}" / f"o{number}" / name, frame)
    return root


def cub200(root: Path, n_classes: int = 3, per_class: int = 3) -> Path:
    """The tree of CUB_200_2011.tgz, with few birds; every third image is for testing."""
    folder = root / "CUB_200_2011"
    names = [f"{number:03}.Bird_{number}" for number in range(1, n_classes + 1)]
    lines: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    for number in range(n_classes * per_class):
        bird = number // per_class
        file = f"{names[bird]}/Bird_{number:04}.jpg"
        write(folder / "images" / file, number)
        lines["images"].append(f"{number + 1} {file}")
        lines["image_class_labels"].append(f"{number + 1} {bird + 1}")
        lines["train_test_split"].append(f"{number + 1} {int(number % 3 > 0)}")
    lines["classes"] = [f"{number} {name}" for number, name in enumerate(names, start=1)]
    for name, content in lines.items():
        (folder / f"{name}.txt").write_text("\n".join(content) + "\n")
    return root


def tree(root: Path, *files: str) -> Path:
    """Any files by their names; those of images hold one, all others a word."""
    for seed, name in enumerate(files):
        path = root / name
        if path.suffix.lower() in (".jpg", ".png", ".jpeg"):
            write(path, seed)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("word")
    return root
