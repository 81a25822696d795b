"""The gradient heads: one step per batch as autograd takes it, masks, growth, divergence."""

from pathlib import Path
from typing import Any

import pytest
import torch
from streams import H, assert_same_bits, blobs, snapshot
from torch import Tensor

from lastlayer.errors import DataError, DivergedError, OptionError, UnknownNameError
from lastlayer.heads import GradientHead, load_head, make_head
from lastlayer.layers import LAYERS, MASKS, masked_cross_entropy

every_layer = pytest.mark.parametrize("layer", LAYERS)
every_mask = pytest.mark.parametrize("mask", [mask for mask in MASKS if mask != "none"])


def gradient_head(layer: str, **options: Any) -> GradientHead:
    head = make_head(layer, H, **options)
    assert isinstance(head, GradientHead)
    return head


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("layer", "extra"),
    [
        *((layer, {}) for layer in LAYERS),
        ("weight_norm", {"gain": "frozen"}),
        ("cosine", {"scale": 5.0}),
        ("cosine", {"learn_scale": True}),
        ("cosine", {"scale": 5.0, "learn_scale": True}),
    ],
)
def test_observing_equals_sgd(layer: str, extra: dict[str, Any], mask: str) -> None:
    z, y = blobs(n_classes=4)
    z = z.double()
    head = gradient_head(layer, n_classes=4, mask=mask, preset="paper", lr=0.1, **extra).double()
    module = LAYERS[layer](H, 4, **extra).double()
    module.load_state_dict(head.parts())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for batch in torch.arange(80).split(16):
        head.observe(z[batch], y[batch])
        optimizer.zero_grad()
        masked_cross_entropy(module(z[batch]), y[batch], mask).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 10.0)
        optimizer.step()
    for name, part in head.parts().items():
        torch.testing.assert_close(part, module.state_dict()[name], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(head(z), module(z).detach(), rtol=1e-10, atol=1e-10)
    assert torch.equal(head.as_layer()(z), head(z))


@pytest.mark.parametrize("layer", ["linear", "linear_no_bias", "original_weight_norm"])
def test_the_start_is_an_option_that_no_mask_changes(layer: str) -> None:
    h = 400
    bound = h**-0.5
    for start, spread, most in (
        ("uniform", bound / 3**0.5, bound),
        ("normal", (2 / h) ** 0.5, torch.inf),
    ):
        heads = [
            make_head(layer, h, 30, preset="paper", start=start, mask=mask, seed=5)
            for mask in MASKS
        ]
        weight = heads[0].state_dict()["weight"]
        assert weight.std().item() == pytest.approx(spread, rel=0.03)
        assert weight.abs().max() <= most
        assert all(torch.equal(head.state_dict()["weight"], weight) for head in heads)
    for mask in MASKS:
        default = make_head(layer, h, 30, preset="paper", mask=mask, seed=5)
        assert default.options["start"] == "uniform"


@pytest.mark.parametrize("layer", ["weight_norm", "cosine"])
def test_the_other_layers_have_one_start(layer: str) -> None:
    with pytest.raises(OptionError, match=f"got 'normal' for '{layer}' with preset 'paper'"):
        make_head(layer, H, 3, preset="paper", start="normal")


def test_options_that_do_not_apply_are_refused() -> None:
    with pytest.raises(OptionError, match="start goes with preset 'paper'"):
        make_head("linear", H, 3, start="uniform")
    with pytest.raises(OptionError, match="'cosine' takes no gain, got 'frozen'"):
        make_head("cosine", H, 3, gain="frozen")
    with pytest.raises(UnknownNameError, match="unknown start 'normall'; did you mean 'normal'"):
        make_head("linear", H, 3, preset="paper", start="normall")


@pytest.mark.parametrize("preset", ["exact", "paper"])
def test_a_frozen_gain_grows_saves_and_loads(preset: str, tmp_path: Path) -> None:
    z, y = blobs(n_classes=4)
    head = gradient_head("weight_norm", gain="frozen", preset=preset, n_classes=2, seed=7)
    whole = gradient_head("weight_norm", gain="frozen", preset=preset, n_classes=4, seed=7)
    first = head.state_dict()["gamma"].clone()
    assert torch.equal(first, head.weight.norm(dim=1))
    head.observe(z[y < 2], y[y < 2])
    head.observe(z, y)
    assert torch.equal(head.state_dict()["gamma"], whole.state_dict()["gamma"])
    assert not torch.equal(head.weight.norm(dim=1)[:2], first)
    head.save(tmp_path / "head.safetensors")
    again = load_head(tmp_path / "head.safetensors")
    assert again.options["gain"] == "frozen"
    assert torch.equal(again(z), head(z))


def rows_of(head: GradientHead, classes: list[int]) -> dict[str, Tensor]:
    """Give all that is learned about some classes."""
    return {
        name: tensor[classes].clone()
        for name, tensor in head.state_dict().items()
        if name not in ("seen", "steps")
    }


def train_then_leave_out(head: GradientHead, steps: int) -> tuple[dict[str, Tensor], ...]:
    """Train on four classes, then on two; give what was learned of the others, before and after."""
    z, y = blobs(n_classes=4)
    for _ in range(5):
        head.observe(z, y)
    before = rows_of(head, [2, 3])
    assert any(tensor.any() for name, tensor in before.items() if name.startswith("velocity"))
    few = y < 2
    batches = list(zip(z[few].split(10), y[few].split(10), strict=True))
    for i in range(steps):
        head.observe(*batches[i % len(batches)])
    return before, rows_of(head, [2, 3])


@every_layer
@every_mask
@pytest.mark.parametrize("steps", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_exact_masking_leaves_absent_classes_alone(layer: str, mask: str, steps: int) -> None:
    before, after = train_then_leave_out(gradient_head(layer, mask=mask), steps)
    assert_same_bits(after, before)


@every_layer
@every_mask
def test_paper_masking_lets_absent_classes_drift(layer: str, mask: str) -> None:
    head = gradient_head(layer, mask=mask, preset="paper")
    before, after = train_then_leave_out(head, steps=1)
    for name, tensor in before.items():
        assert not torch.equal(after[name], tensor), name


@every_layer
def test_without_a_mask_absent_classes_move(layer: str) -> None:
    before, after = train_then_leave_out(gradient_head(layer), steps=1)
    assert not torch.equal(after["weight"], before["weight"])


@every_layer
@pytest.mark.parametrize("preset", ["exact", "paper"])
def test_growth_is_deterministic(layer: str, preset: str) -> None:
    declared = gradient_head(layer, n_classes=6, preset=preset, seed=3)
    grown = gradient_head(layer, preset=preset, seed=3)
    for n_classes in (1, 2, 6):
        grown._grow(n_classes)
    assert_same_bits(snapshot(grown), snapshot(declared))
    starts_at_zero = preset == "exact" and layer.startswith("linear")
    other = gradient_head(layer, n_classes=6, preset=preset, seed=4)
    assert torch.equal(other.weight, declared.weight) == starts_at_zero
    assert bool(declared.weight.any()) != starts_at_zero


@every_layer
def test_new_classes_leave_the_old_rows_as_they_are(layer: str) -> None:
    z, y = blobs()
    head = gradient_head(layer)
    head.observe(z, y)
    before = rows_of(head, [0, 1, 2])
    head._grow(7)
    assert_same_bits(rows_of(head, [0, 1, 2]), before)
    velocities = [name for name in before if name.startswith("velocity")]
    assert not any(rows_of(head, [3, 4, 5, 6])[name].any() for name in velocities)


@pytest.mark.parametrize("layer", ["linear", "linear_no_bias", "original_weight_norm"])
@pytest.mark.parametrize("mask", MASKS)
def test_divergence_names_its_step_and_changes_nothing(layer: str, mask: str) -> None:
    z, y = blobs()
    head = gradient_head(layer, mask=mask, lr=1e36)
    before: list[dict[str, Tensor]] = []

    def train() -> None:
        for _ in range(100):
            before.append(snapshot(head))
            head.observe(1e3 * z, y + 4)

    with pytest.raises(DivergedError, match=r"learning rate 1e\+36: use a smaller one") as caught:
        train()
    assert f"at step {len(before)} " in str(caught.value)
    assert isinstance(caught.value, ArithmeticError)
    assert_same_bits(snapshot(head), before[-1])
    if int(head.steps):
        assert not head(z).isnan().any()


@pytest.mark.parametrize("layer", LAYERS)
def test_divergence_at_the_very_first_step(layer: str) -> None:
    z, y = blobs()
    head = gradient_head(layer, lr=float(torch.finfo(torch.float32).max))
    before = snapshot(head)
    with pytest.raises(DivergedError, match="at step 1 "):
        head.observe(1e4 * z, y)
    assert_same_bits(snapshot(head), before)
    assert head.n_classes == 0


def test_features_too_large_for_the_rows_are_refused() -> None:
    z, y = blobs()
    head = gradient_head("linear")
    with pytest.raises(DataError, match=r"features must be finite"):
        head.observe(1e50 * z.double(), y)
    assert head.n_classes == 0
