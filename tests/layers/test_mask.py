"""The masked cross-entropy: the paper's numbers, plain cross-entropy without a mask, bad input."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from lastlayer.errors import LabelError, LastLayerError, ShapeError, UnknownNameError
from lastlayer.layers import MASKS, masked_cross_entropy


def test_the_example_of_single_masking() -> None:
    logits = torch.tensor([[1.0, 2.0, -1.0]], requires_grad=True)
    loss = masked_cross_entropy(logits, torch.tensor([0]), "single")
    loss.backward()
    assert loss.neg().exp().item() == pytest.approx(0.576, abs=5e-4)
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-0.424, 0, 0], abs=5e-4)


def test_group_keeps_the_classes_of_the_batch() -> None:
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], requires_grad=True)
    y = torch.tensor([0, 1])
    loss = masked_cross_entropy(logits, y, "group")
    loss.backward()
    expected = functional.cross_entropy(logits * torch.tensor([1.0, 1.0, 0.0]), y)
    assert torch.equal(loss, expected)
    assert logits.grad is not None
    assert (logits.grad[:, 2] == 0).all()
    assert (logits.grad[:, :2] != 0).all()


@settings(max_examples=30)
@given(n=st.integers(1, 8), n_classes=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_masks_against_their_definition(n: int, n_classes: int, seed: int) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(n, n_classes, dtype=torch.float64)
    y = torch.randint(n_classes, (n,))
    classes = torch.arange(n_classes)
    kept = {
        "none": torch.ones(n, n_classes),
        "single": (classes == y[:, None]).double(),
        "group": torch.isin(classes, y).double().expand(n, n_classes),
    }
    assert kept.keys() == MASKS.keys()
    for mask, keep in kept.items():
        expected = functional.cross_entropy(logits * keep, y)
        torch.testing.assert_close(masked_cross_entropy(logits, y, mask), expected)
        torch.testing.assert_close(masked_cross_entropy(logits, y.int(), mask), expected)


LOGITS, Y = torch.zeros(2, 3), torch.tensor([0, 2])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("logits", "y", "error", "message"),
    [
        (LOGITS[0], Y[:1], ShapeError, r"logits must be \(n, classes\).*got \(3,\) and \(1,\)"),
        (LOGITS, Y[:1], ShapeError, r"logits must be .* labels \(n,\), got \(2, 3\) and \(1,\)"),
        (LOGITS, Y + 1, LabelError, r"labels must be from 0 to 2, got 1 to 3"),
        (LOGITS, Y - 1, LabelError, r"labels must be from 0 to 2, got -1 to 1"),
        (LOGITS, Y.double(), LabelError, r"labels must be an integer tensor, got torch.float64"),
        (LOGITS[:0], Y[:0], ShapeError, r"there must be at least one sample, got none"),
    ],
)
def test_bad_input_is_refused(
    logits: torch.Tensor, y: torch.Tensor, error: type[LastLayerError], message: str, mask: str
) -> None:
    with pytest.raises(error, match=message):
        masked_cross_entropy(logits, y, mask)
    assert issubclass(error, ValueError)


def test_an_unknown_mask_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown mask 'singel'; did you mean 'single'?"):
        masked_cross_entropy(LOGITS, Y, "singel")
