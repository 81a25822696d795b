"""Tiny images, tasks and a backbone with batch norm: a stream that trains in milliseconds."""

import torch
from torch import Tensor, nn

from lastlayer.replay.training.image_pool import ImagePool, make_image_pool


def small_pool(
    counts: tuple[int, ...] = (12, 10, 11, 13, 12, 9), dtype: torch.dtype = torch.float32
) -> ImagePool:
    """Bytes of 4 × 4 pixels; a class is brighter in its own corner of the grey values."""
    draw = torch.Generator().manual_seed(0)
    y = torch.cat([torch.full((n,), c) for c, n in enumerate(counts)])
    y = y[torch.randperm(len(y), generator=draw)]
    look = torch.randint(40, 216, (len(counts), 3, 4, 4), generator=draw)
    noise = torch.randint(-40, 40, (2, len(y), 3, 4, 4), generator=draw)
    train, test = ((look[y] + part).to(torch.uint8) for part in noise)
    return make_image_pool(train, y, test, y, mean=(0.5, 0.5, 0.5), std=(0.25,), dtype=dtype)


def pairs(pool: ImagePool) -> list[Tensor]:
    """Tasks of two classes each."""
    return [((pool.y // 2) == t).nonzero()[:, 0] for t in range(pool.n_classes // 2)]


class SmallNet(nn.Module):
    """A convolution with batch norm, pooled to 5 features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.norm(self.conv(x)).relu()
        return maps.mean((2, 3))
