"""Small streams for the tests of heads: separable blobs, and ways to feed and compare heads."""

import copy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from lastlayer import heads
from lastlayer.catalogue.head_cards import HEADS, all_heads, card_of, split_name
from lastlayer.heads import Head, options_of
from lastlayer.heads.head_file import symmetric_names

H = 4
SMALL = {"width": 40, "steps": 60}  # what holds for a width of 40 holds for 2,000, only faster
EVERY_HEAD = [(name, preset) for name in all_heads() for preset in ("exact", "paper")]
ONE_OF_EACH_KIND = [  # families, presets, masks, and a map
    ("linear", "exact"), ("cosine+single", "paper"), ("knn", "exact"), ("median", "paper"),
    ("mean", "exact"), ("slda", "paper"), ("random_ridge", "exact"),
]  # fmt: skip


def stands_for_others(name: str, preset: str) -> bool:
    """Tell whether the quick run tries a head.

    A mask changes only the training step, so that one layer carries the masks for all five; and
    the heads beyond the paper have one preset under two names.
    """
    layer, mask = split_name(name)
    return (mask == "none" or layer == "cosine") and (preset == "exact" or card_of(name).in_paper)


def _param(name: str, preset: str, quick: bool) -> Any:
    return pytest.param(name, preset, marks=[] if quick else [pytest.mark.slow])


every_head = pytest.mark.parametrize(
    ("name", "preset"), [_param(*one, stands_for_others(*one)) for one in EVERY_HEAD]
)
every_exact_head = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if stands_for_others(name, "exact") else [pytest.mark.slow])
        for name in all_heads()
    ],
)
# For checks that take long: the quick run tries one head of each kind.
every_kind = pytest.mark.parametrize(
    ("name", "preset"), [_param(*one, one in ONE_OF_EACH_KIND) for one in EVERY_HEAD]
)


def make_head(name: str, *sizes: int, **options: Any) -> Head:
    """Make a head, a narrow one if it has a width, with few steps if it trains on samples."""
    base = str(name).partition("+")[0]
    if base in HEADS:
        for option, small in SMALL.items():
            if option in options_of(base):
                options.setdefault(option, small)
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
    """Copy what a head has learned; of symmetric matrices what counts, the lower triangle."""
    halves = symmetric_names(head)
    state = head.state_dict().items()
    return {name: tensor.tril() if name in halves else tensor.clone() for name, tensor in state}


def assert_same_bits(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype, name
        assert torch.equal(got[name], tensor), name
