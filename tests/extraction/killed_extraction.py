"""Kills an extraction at random moments, in processes of its own; run by its test."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import lastlayer as ll
from killing import KILLS, fork, kill
from lastlayer.extraction import parts

parts.SIZE = 4  # images of a part: many parts


def pixels(image: Any) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


def start(folder: Path, images: Path) -> int:
    def do() -> None:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        given = ll.read_images("folder", images, test=0.5)
        out = folder / "features.safetensors"
        ll.extract(given, network, pixels, out, batch_size=2, workers=0, device="cpu")

    return fork(do)


if __name__ == "__main__":
    root, images = map(Path, sys.argv[1:])
    killed = kill(root, partial(start, images=images), kills=KILLS // 4, after=(0, 1))
    print(killed)  # noqa: T201  (read by the test)
