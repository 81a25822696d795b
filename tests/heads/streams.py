"""Small streams for the tests of heads: separable blobs, and ways to feed and compare heads."""

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor

from lastlayer import heads
from lastlayer.catalogue import HEADS, all_heads
from lastlayer.heads import Head, options_of

H = 4
WIDTH = 40  # of heads that have one: what holds for 40 holds for 2,000, only faster
EVERY_HEAD = [(name, preset) for name in all_heads() for preset in ("exact", "paper")]


def make_head(name: str, *sizes: int, **options: Any) -> Head:
    """Make a head, a narrow one if it has a width."""
    base = str(name).partition("+")[0]
    if base in HEADS and "width" in options_of(base):
        options.setdefault("width", WIDTH)
    return heads.make_head(name, *sizes, **options)


def blobs(n_per_class: int = 20, n_classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Give blobs along the axes, apart in distance and in angle, in random order."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n_classes).repeat(n_per_class)
    y = y[torch.randperm(len(y), generator=generator)]
    noise = torch.randn(len(y), H, generator=generator)
    return 3 * torch.eye(H)[y] + 0.3 * noise, y


def batches(z: Tensor, y: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(z.split(size), y.split(size), strict=True))


def trained(name: str, preset: str, n_classes: int = 0) -> Head:
    """Give a head that has observed the blobs as often as it may, at most 20 times."""
    return copy.deepcopy(_trained(name, preset, n_classes))


@cache
def _trained(name: str, preset: str, n_classes: int) -> Head:
    head = make_head(name, H, n_classes, preset=preset)
    for _ in range(head.passes or 20):
        for z, y in batches(*blobs(), size=15):
            head.observe(z, y)
    return head


def accuracy(head: Head, z: Tensor, y: Tensor) -> float:
    return (head.predict(z) == y).double().mean().item()


def snapshot(head: Head) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in head.state_dict().items()}


def assert_same_bits(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype, name
        assert torch.equal(got[name], tensor), name
