"""The closed-form step against autograd and torch.optim.SGD, for every layer and mask."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lastlayer.heads.gradient.descent import CLIP, MOMENTUM, step
from lastlayer.heads.gradient.members import Members
from lastlayer.layers import LAYERS, MASKS, Layer, masked_cross_entropy


def make_members(layers: list[Layer], masks: list[str], lr: list[float], exact: bool) -> Members:
    """Lay layers out as the members of one stream."""
    weight = torch.stack([layer.weight.detach() for layer in layers])[None]
    parameters = {"weight": weight}
    for name in ("bias", "gamma"):
        parts = [layer.parts().get(name, weight.new_zeros(weight.shape[2])) for layer in layers]
        parameters[name] = torch.stack([part.detach() for part in parts])[None].clone()
    shape = weight.shape[:2]
    return Members(
        forms=[layer.form for layer in layers],
        masks=masks,
        parameters=parameters,
        velocity={name: torch.zeros_like(p) for name, p in parameters.items()},
        lr=torch.tensor([lr], dtype=weight.dtype),
        steps=torch.zeros((), dtype=torch.int64),
        diverged=torch.full(shape, -1),
        seen=torch.zeros(1, weight.shape[2], dtype=weight.dtype) if exact else None,
    )


def train_by_autograd(
    layer: Layer, mask: str, lr: float, batches: list[tuple[Tensor, Tensor]]
) -> None:
    optimizer = torch.optim.SGD(layer.parameters(), lr=lr, momentum=MOMENTUM)
    for z, y in batches:
        optimizer.zero_grad()
        masked_cross_entropy(layer(z), y, mask).backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), CLIP)
        optimizer.step()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(1, 9),
    h=st.integers(1, 7),
    n_classes=st.integers(1, 6),
    size=st.sampled_from([0.1, 1.0, 50.0]),
    seed=st.integers(0, 2**31),
)
def test_steps_equal_autograd(
    name: str, mask: str, n: int, h: int, n_classes: int, size: float, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = LAYERS[name](h, n_classes).double()
    members = make_members([layer], [mask], [0.3], exact=False)
    batches = [
        (torch.randn(n, h).double() * size, torch.randint(n_classes, (n,))) for _ in range(4)
    ]
    for z, y in batches:
        step(members, z[None], y[None])
    train_by_autograd(layer, mask, 0.3, batches)
    for part, expected in layer.parts().items():
        got = members.parameters[part][0, 0]
        torch.testing.assert_close(got, expected.detach(), rtol=1e-10, atol=1e-10)


def test_all_fifteen_train_together_as_alone() -> None:
    torch.manual_seed(0)
    names = [(name, mask) for name in LAYERS for mask in MASKS]
    layers = [LAYERS[name](5, 4).double() for name, _ in names]
    lrs = [0.1 * (i + 1) for i in range(15)]
    members = make_members(layers, [mask for _, mask in names], lrs, exact=False)
    batches = [(torch.randn(8, 5).double(), torch.randint(4, (8,))) for _ in range(6)]
    for z, y in batches:
        step(members, z[None], y[None])
    for i, (layer, (_, mask)) in enumerate(zip(layers, names, strict=True)):
        train_by_autograd(layer, mask, lrs[i], batches)
        for part, expected in layer.parts().items():
            got = members.parameters[part][0, i]
            torch.testing.assert_close(got, expected.detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("exact", [False, True])
def test_padding_changes_nothing(exact: bool) -> None:
    torch.manual_seed(0)
    layers = [LAYERS[name](5, 4).double() for name in LAYERS]
    masks = ["none", "group", "single", "group", "single"]
    members = make_members(layers, masks, [0.1] * 5, exact)
    padded = copy.deepcopy(members)
    for _ in range(5):
        z, y = torch.randn(1, 6, 5).double(), torch.randint(4, (1, 6))
        step(members, z, y)
        more_z = torch.cat([z, torch.randn(1, 3, 5).double()], dim=1)
        more_y = torch.cat([y, torch.randint(4, (1, 3))], dim=1)
        share = torch.tensor([[1 / 6] * 6 + [0.0] * 3], dtype=torch.float64)
        step(padded, more_z, more_y, share)
    for name, expected in members.parameters.items():
        torch.testing.assert_close(padded.parameters[name], expected, rtol=1e-10, atol=1e-10)


def test_a_stream_without_samples_stands_still() -> None:
    torch.manual_seed(0)
    members = make_members([LAYERS["linear"](5, 4)], ["none"], [0.1], exact=False)
    z, y = torch.randn(1, 6, 5), torch.randint(4, (1, 6))
    step(members, z, y)
    before = copy.deepcopy(members)
    step(members, z, y, torch.zeros(1, 6))
    for name, expected in before.parameters.items():
        assert torch.equal(members.parameters[name], expected)
        assert torch.equal(members.velocity[name], before.velocity[name])


def test_scores_of_shared_features_are_those_of_each_streams_own() -> None:
    torch.manual_seed(0)
    layers = [layer(4, 3).double() for layer in LAYERS.values()]
    members = make_members(layers, ["none"] * len(layers), [0.1] * len(layers), exact=False)
    z = torch.randn(9, 4, dtype=torch.float64)
    rows, _ = members.rows()
    shared = members.scores(z, rows, members.inverse_input(z))
    assert shared.shape == (1, len(layers), 3, 9)
    for layer, scores in zip(layers, shared[0], strict=True):
        torch.testing.assert_close(scores, layer(z).mT)
    own = members.scores(z[None], rows, members.inverse_input(z[None]))
    torch.testing.assert_close(shared, own)
