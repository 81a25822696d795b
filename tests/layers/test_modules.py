"""The layers as modules: shapes, starts, state, and a place in an ordinary training loop."""

import copy

import pytest
import torch
from torch import nn

import lastlayer as ll
from lastlayer.errors import UnknownNameError
from lastlayer.layers import (
    LAYERS,
    MASKS,
    Cosine,
    Layer,
    OriginalWeightNorm,
    WeightNorm,
    masked_cross_entropy,
)

every_layer = pytest.mark.parametrize("name", LAYERS)


@every_layer
def test_it_maps_features_to_logits(name: str) -> None:
    layer = LAYERS[name](4, 3)
    assert layer(torch.randn(5, 4)).shape == (5, 3)
    assert layer(torch.randn(2, 5, 4)).shape == (2, 5, 3)
    assert repr(layer) == f"{type(layer).__name__}(in_features=4, out_features=3)"


@every_layer
def test_its_rows_start_kaiming_normal(name: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name](50, 400)
    assert layer.weight.std().item() == pytest.approx((2 / 50) ** 0.5, rel=0.02)
    assert {part for part, _ in layer.named_parameters()} == set(layer.form.learned)
    if isinstance(layer, OriginalWeightNorm):
        assert torch.equal(layer.gamma, layer.weight.norm(dim=1))


@every_layer
def test_copies_and_states_are_alike(name: str) -> None:
    layer, other = LAYERS[name](4, 3), LAYERS[name](4, 3)
    z = torch.randn(5, 4)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(z), layer(z))
    assert torch.equal(copy.deepcopy(layer).double()(z.double()), layer.double()(z.double()))


@every_layer
@pytest.mark.parametrize("mask", MASKS)
def test_it_trains_inside_a_network(name: str, mask: str) -> None:
    torch.manual_seed(0)
    y = torch.arange(3).repeat(20)
    x = 3 * torch.eye(6)[y] + 0.3 * torch.randn(60, 6)
    network = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), LAYERS[name](8, 3))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = masked_cross_entropy(network(x), y, mask)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    if mask == "none":  # with all classes in every batch, a mask need not separate them
        assert (network(x).argmax(dim=1) == y).all()


def test_the_scale_of_cosine() -> None:
    torch.manual_seed(0)
    z = torch.randn(5, 4)
    plain, fixed, learned = Cosine(4, 3), Cosine(4, 3, scale=8), Cosine(4, 3, learn_scale=True)
    for layer in (fixed, learned):
        layer.load_state_dict({**layer.state_dict(), "weight": plain.weight.detach()})
    torch.testing.assert_close(fixed(z), 8 * plain(z))
    torch.testing.assert_close(learned(z), plain(z))
    assert [part for part, _ in fixed.named_parameters()] == ["weight"]
    assert {part for part, _ in learned.named_parameters()} == {"weight", "scale"}
    assert plain(z).abs().max() <= 1


def test_a_frozen_gain_is_torchs_weight_norm_with_g_fixed() -> None:
    """As the authors wrote it: g keeps the length that the row had when the layer was made."""
    torch.manual_seed(0)
    layer = WeightNorm(4, 3, gain="frozen")
    plain = nn.Linear(4, 3, bias=False)
    plain.weight.data.copy_(layer.weight)
    theirs = nn.utils.parametrizations.weight_norm(plain)
    g, v = theirs.parametrizations.weight.parameters()
    g.requires_grad_(False)
    z, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    for module in (layer, theirs):
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.5)
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(z), y).backward()
            optimizer.step()
    torch.testing.assert_close(layer.weight, v)
    torch.testing.assert_close(layer(z), theirs(z))
    assert [part for part, _ in layer.named_parameters()] == ["weight"]


def test_an_unknown_gain_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown gain 'frozn'; did you mean 'frozen'"):
        WeightNorm(4, 3, gain="frozn")


def test_the_public_names_are_the_layers() -> None:
    for name in ("Linear", "LinearNoBias", "WeightNorm", "OriginalWeightNorm", "Cosine"):
        assert issubclass(getattr(ll, name), Layer)
    assert ll.masked_cross_entropy is masked_cross_entropy


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_may_have_no_class_yet(name: str) -> None:
    assert LAYERS[name](3, 0)(torch.ones(2, 3)).shape == (2, 0)
