"""Each layer's closed form against autograd and against the formula written plainly."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from lastlayer.layers import LAYERS, Cosine, Form, WeightNorm

FORMS = {name: layer.form for name, layer in LAYERS.items()} | {
    "weight_norm, frozen gain": WeightNorm.gains["frozen"],
    "cosine, fixed scale": Cosine(1, 1, scale=2.0).form,
    "cosine, learned scale": Cosine(1, 1, learn_scale=True).form,
}
every_form = pytest.mark.parametrize("name", FORMS)
sizes = given(
    leading=st.lists(st.integers(1, 3), max_size=2),
    n=st.integers(1, 6),
    n_classes=st.integers(1, 5),
    h=st.integers(1, 5),
    seed=st.integers(0, 2**31),
)


def draw(
    form: Form, leading: list[int], n: int, n_classes: int, h: int
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    shapes = {"weight": (n_classes, h), "bias": (n_classes,), "gamma": (n_classes,), "scale": ()}
    parameters = {
        part: torch.randn((*leading, *shapes[part]), dtype=torch.float64)
        for part in form.parameters
    }
    z = torch.randn(*leading, n, h, dtype=torch.float64)
    return z, torch.randint(n_classes, (*leading, n)), parameters


def plain_cosine(z: Tensor, p: dict[str, Tensor]) -> Tensor:
    return functional.cosine_similarity(z.unsqueeze(-2), p["weight"].unsqueeze(-3), dim=-1)


PLAIN: dict[str, Callable[[Tensor, dict[str, Tensor]], Tensor]] = {
    "linear": lambda z, p: z @ p["weight"].mT + p["bias"].unsqueeze(-2),
    "linear_no_bias": lambda z, p: z @ p["weight"].mT,
    "weight_norm": lambda z, p: z @ functional.normalize(p["weight"], dim=-1).mT,
    "weight_norm, frozen gain": lambda z, p: (
        z @ functional.normalize(p["weight"], dim=-1).mT * p["gamma"].unsqueeze(-2)
    ),
    "original_weight_norm": lambda z, p: (
        z @ functional.normalize(p["weight"], dim=-1).mT * p["gamma"].unsqueeze(-2)
    ),
    "cosine": plain_cosine,
    "cosine, fixed scale": lambda z, p: plain_cosine(z, p) * p["scale"][..., None, None],
    "cosine, learned scale": lambda z, p: plain_cosine(z, p) * p["scale"][..., None, None],
}


@every_form
@settings(max_examples=25)
@sizes
def test_logits_equal_the_formula(
    name: str, *, leading: list[int], n: int, n_classes: int, h: int, seed: int
) -> None:
    torch.manual_seed(seed)
    z, _, parameters = draw(FORMS[name], leading, n, n_classes, h)
    got = FORMS[name].logits(z, parameters)
    assert got.shape == (*leading, n, n_classes)
    torch.testing.assert_close(got, PLAIN[name](z, parameters), rtol=1e-10, atol=1e-10)


@every_form
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_vectors_have_an_answer(name: str, dtype: torch.dtype) -> None:
    form = FORMS[name]
    parts = {"weight": torch.eye(2), "bias": torch.ones(2), "gamma": torch.ones(2)}
    parts["scale"] = torch.tensor(3.0)
    parameters = {part: parts[part].to(dtype) for part in form.parameters}
    parameters["weight"][1] = 0
    z = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=dtype)
    for tensor in (z, *parameters.values()):
        tensor.requires_grad_()
    logits = form.logits(z, parameters)
    constant = 1.0 if "bias" in parameters else 0.0
    assert logits[0].tolist() == [constant, constant]
    assert logits[1, 1].item() == constant
    logits.sum().backward()
    for part in parameters.values():
        assert part.grad is not None
        assert part.grad.isfinite().all()
    assert z.grad is not None
    assert z.grad.isfinite().all()
