"""Layers and masks refuse in their own words what PyTorch would refuse in its."""

from typing import Any

import pytest
import torch

from lastlayer.errors import ArgumentError, DataError, LastLayerError, OptionError, ShapeError
from lastlayer.layers import LAYERS, Cosine, Layer, masked_cross_entropy

Z = torch.ones(2, 3)
Y = torch.tensor([0, 1])
ODD = {
    "sparse": Z.to_sparse(),
    "float8": Z.to(torch.float8_e4m3fn),
    "complex": Z + 1j,
    "meta": Z.to("meta"),
    "integer": Z.long(),
    "bool": Z > 0,
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> Layer:
    return LAYERS[request.param](3, 2)


@pytest.mark.parametrize("z", ODD.values(), ids=ODD)
def test_odd_features(layer: Layer, z: torch.Tensor) -> None:
    with pytest.raises(LastLayerError, match="must"):
        layer(z)


@pytest.mark.parametrize("z", [None, [[1.0, 2.0, 3.0]], "z", Z.numpy()])
def test_features_that_are_no_tensor(layer: Layer, z: Any) -> None:
    with pytest.raises(ArgumentError, match="features must be a tensor"):
        layer(z)


@pytest.mark.parametrize("z", [Z[0], Z[:, :2], Z[0, 0]])
def test_features_of_another_shape(layer: Layer, z: torch.Tensor) -> None:
    with pytest.raises(ShapeError, match=r"features must have shape \(…, n, 3\), got"):
        layer(z)


def test_features_of_another_type(layer: Layer) -> None:
    with pytest.raises(DataError, match=r"use z\.to\(layer\.weight\.dtype\)"):
        layer(Z.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(Z.bfloat16()).shape == (2, 2)


def test_a_layer_may_lie_on_the_meta_device(layer: Layer) -> None:
    assert layer.to("meta")(Z.to("meta")).shape == (2, 2)


@pytest.mark.parametrize("sizes", [("3", 2), (3, None), (2.0, 2), (True, 2), (3, [2])])
def test_sizes_are_whole_numbers(sizes: tuple[Any, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"(in|out)_features must be an integer"):
        LAYERS["linear"](*sizes)


@pytest.mark.parametrize("sizes", [(0, 2), (-1, 2), (3, -1), (10**9, 10**9), (10**30, 2)])
def test_sizes_that_cannot_be(sizes: tuple[int, int]) -> None:
    with pytest.raises(OptionError, match=r"must be|must fit into memory"):
        LAYERS["linear"](*sizes)


def test_a_scale_is_a_number() -> None:
    with pytest.raises(ArgumentError, match="scale must be a number"):
        Cosine(3, 2, scale="10")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="scale must be finite"):
        Cosine(3, 2, scale=float("nan"))


@pytest.mark.parametrize("logits", ODD.values(), ids=ODD)
def test_odd_logits(logits: torch.Tensor) -> None:
    with pytest.raises(LastLayerError, match="logits"):
        masked_cross_entropy(logits, Y)


@pytest.mark.parametrize("y", [*(odd[:, 0] for odd in (Z + 1j, Z > 0, Z)), Y.to_sparse()])
def test_odd_labels(y: torch.Tensor) -> None:
    with pytest.raises(LastLayerError, match="labels"):
        masked_cross_entropy(Z, y)


@pytest.mark.parametrize(("logits", "y"), [(None, Y), (Z, None), (Z.tolist(), Y), (Z, [0, 1])])
def test_a_loss_of_no_tensors(logits: Any, y: Any) -> None:
    with pytest.raises(ArgumentError, match="must be a tensor"):
        masked_cross_entropy(logits, y)
