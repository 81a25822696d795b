"""Heads as ordinary layers: the same answers, of classes never seen too."""

import pytest
import torch

from lastlayer.catalogue.head_cards import HEADS, able
from lastlayer.errors import LastLayerError, NotLearnedError, UnsupportedError
from lastlayer.heads import make_head


@pytest.mark.parametrize("preset", ["exact", "paper"])
@pytest.mark.parametrize("name", able("linear"))
def test_the_layer_answers_as_the_head_does(name: str, preset: str) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3 + 1  # class 0 is declared and never seen
    z = torch.randn(300, 5, generator=generator) + 0.5 * y[:, None]
    head = make_head(name, 5, n_classes=4, preset=preset)
    head.observe(z, y)
    layer = head.as_linear(torch.float64)
    queries = 2 * torch.randn(1000, 5, generator=generator, dtype=torch.float64)
    assert torch.equal(layer(queries).argmax(dim=1), head.predict(queries))
    if name in ("mean", "median", "slda"):
        assert bool((head.predict(queries) == 0).any()) == (preset == "paper")


@pytest.mark.parametrize("name", [name for name in HEADS if name not in able("linear")])
def test_what_is_no_linear_layer_says_which_heads_are(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"these heads can: {', '.join(able('linear'))}$"):
        make_head(name, 2).as_linear()


@pytest.mark.parametrize("name", able("linear"))
def test_nothing_learned_is_no_layer(name: str) -> None:
    with pytest.raises(NotLearnedError):
        make_head(name, 2, 2).as_linear()


@pytest.mark.parametrize("name", able("linear"))
def test_a_layer_has_a_floating_point_type(name: str) -> None:
    head = make_head(name, 2)
    head.observe(torch.rand(6, 2), torch.tensor([0, 1] * 3))
    with pytest.raises(LastLayerError, match="int64"):
        head.as_linear(torch.int64)


def test_the_papers_slda_is_a_linear_layer_too() -> None:
    assert make_head("slda", 2, 2, preset="paper").abilities.linear
