"""A forgetting that cannot be right is refused; one that is right never is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import assert_same_bits, snapshot

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.errors import DataError
from lastlayer.heads import Head, make_head

FORGETTING = [name for name, card in HEADS.items() if card.abilities.forgets]
SCATTERS = [
    ("slda", {}), ("slda", {"per_class_scatter": True}), ("ridge", {}), ("qda", {}),
    ("qda", {"diagonal": True}), ("sampled_linear", {}), ("mean", {}),
]  # fmt: skip


def made(name: str, **options: object) -> Head:
    wide = {"width": 30} if name.startswith("random_") else {}
    return make_head(name, 5, **wide, **options)


def stream(n: int, scale: float, shift: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    z = 3 * torch.eye(5, dtype=torch.float64)[y]
    z = z + torch.randn(n, 5, generator=generator, dtype=torch.float64)
    return scale * z + shift, y


@pytest.mark.parametrize("name", FORGETTING)
@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(3, 60),
    scale=st.sampled_from([1e-2, 1.0, 1e5]),
    shift=st.sampled_from([0.0, 1.0, 1e3]),
    seed=st.integers(0, 99),
    size=st.integers(1, 20),
)
def test_what_was_observed_can_be_forgotten(
    name: str, n: int, scale: float, shift: float, seed: int, size: int
) -> None:
    """All of it, piece by piece, in any order; unless rounding has drowned what stays."""
    z, y = stream(n, scale, shift, seed)
    head = made(name)
    head.observe(z, y)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    for rows in order.split(size):
        try:
            head.forget(z[rows], y[rows])
        except DataError as error:
            assert "cannot forget exactly" in str(error)  # noqa: PT017
            return
    assert not head.seen.any()


@pytest.mark.parametrize(("name", "options"), SCATTERS)
@pytest.mark.parametrize("rows", [1, 3])
def test_what_lies_beyond_the_scatter_is_refused(name: str, options: dict, rows: int) -> None:
    z, y = stream(60, 1.0, 0.0, 0)
    head = made(name, **options)
    head.class_names = ["emu", "ibis", "owl"]
    head.observe(z, y)
    before = snapshot(head)
    far = z[:1].repeat(rows, 1) + 40 * torch.eye(5, dtype=torch.float64)[:rows]
    these = "this sample" if rows == 1 else f"these {rows} samples"
    with pytest.raises(DataError, match=rf"cannot forget {these}.*nothing was changed"):
        head.forget(far, y[:1].repeat(rows))
    assert_same_bits(snapshot(head), before)
    head.forget(z[:1], y[:1])


def test_the_samples_to_blame_are_those_of_one_class() -> None:
    z, y = stream(60, 1.0, 0.0, 0)
    head = make_head("qda", 5)
    head.class_names = ["emu", "ibis", "owl"]
    head.observe(z, y)
    owls, others = (y == 2).nonzero()[:2, 0], (y != 2).nonzero()[:7, 0]
    z[owls] += 40 * torch.eye(5, dtype=torch.float64)[:2]
    which = torch.cat([others, owls])
    with pytest.raises(DataError, match="cannot forget these 2 samples of 'owl'"):
        head.forget(z[which], y[which])


def test_the_bound_of_one_row_is_the_one_of_the_scatter() -> None:
    """dᵀS⁺d ≤ 1 − 1/n, tight to the last digits, and d in the range of S."""
    z, _ = stream(12, 1.0, 0.0, 1)
    z[:, 4] = 0  # S has no such direction
    head = make_head("qda", 5)
    head.observe(z, torch.zeros(12, dtype=torch.int64))
    s, mean = head.statistics.pooled_scatter(), z.mean(dim=0)
    direction = torch.tensor([1.0, -2.0, 0.5, 1.0, 0.0], dtype=torch.float64)
    reach = ((1 - 1 / 12) / (direction @ torch.linalg.pinv(s) @ direction)).sqrt()
    one = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(DataError, match="negative variance"):
        head.forget((mean + 1.0001 * reach * direction)[None], one)
    with pytest.raises(DataError, match="negative variance"):
        head.forget((mean + 0.01 * torch.eye(5, dtype=torch.float64)[4])[None], one)
    head.forget((mean + 0.9999 * reach * direction)[None], one)


@pytest.mark.parametrize(("name", "options"), SCATTERS)
def test_a_whole_class_has_its_own_mean(name: str, options: dict) -> None:
    z, y = stream(60, 1.0, 0.0, 0)
    head = made(name, **options)
    head.class_names = ["emu", "ibis", "owl"]
    head.observe(z, y)
    mine = y == 1
    with pytest.raises(DataError, match=r"'ibis': .*their mean is not that of the class"):
        head.forget(z[mine] + 1e-3, y[mine])
    head.forget(z[mine], y[mine])


@pytest.mark.parametrize(("name", "options"), [s for s in SCATTERS if s[0] != "mean"][:3])
def test_few_samples_leave_few_directions(name: str, options: dict) -> None:
    """Four samples span three directions; without one of them, two."""
    z, _ = stream(4, 1.0, 0.0, 2)
    zeros = torch.zeros(4, dtype=torch.int64)
    head = made(name, **options)
    head.observe(z, zeros)
    within = z.mean(dim=0) + 0.5 * (z[0] - z.mean(dim=0))  # in the range, and not one of them
    with pytest.raises(DataError, match="more directions than its samples can"):
        head.forget(within[None], zeros[:1])
    head.forget(z[:1], zeros[:1])


@pytest.mark.parametrize("name", ["knn", "median", "kernel_ridge"])
def test_rows_that_are_kept_are_the_very_rows(name: str) -> None:
    z, y = stream(30, 1.0, 0.0, 0)
    head = made(name)
    head.observe(z, y)
    with pytest.raises(DataError, match="row 1 is to be forgotten 1 × with its label, and was lea"):
        head.forget(torch.stack([z[0], z[1] + 1e-12]), y[:2])
    head.forget(z[:2], y[:2])


@pytest.mark.parametrize("name", FORGETTING)
def test_what_cannot_be_proven_is_said(name: str) -> None:
    keeps, head = HEADS[name].abilities.keeps_samples, made(name)
    of_rows, _, of_map = head.proof.partition("; its map ")
    assert of_rows.endswith("are checked" if keeps else "cannot be proven")
    assert bool(of_map) == (head.feature_map is not None)


@pytest.mark.parametrize("name", ["mean", "slda", "ridge"])
def test_the_only_sample_of_a_class_must_be_that_sample(name: str) -> None:
    head = make_head(name, 2)
    head.observe(
        torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0], [9.0, 9.0]]), torch.tensor([0, 0, 0, 1])
    )
    with pytest.raises(DataError):
        head.forget(torch.tensor([[9.0, 8.0]]), torch.tensor([1]))
    head.forget(torch.tensor([[9.0, 9.0]]), torch.tensor([1]))
    assert head.class_counts is not None
    assert head.class_counts.tolist() == [3, 0]
