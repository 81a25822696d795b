"""Heads that fade: against a loop over samples, and on a stream whose classes move."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import assert_same_bits, snapshot
from torch import Tensor

from lastlayer.errors import OptionError, UnsupportedError
from lastlayer.heads import load_head, make_head
from lastlayer.heads.statistics.fading import FadingStatistics

FADING = ("mean", "slda", "ridge")
every_fading_head = pytest.mark.parametrize("name", FADING)


def draw(seed: int, n: int = 90, h: int = 4, n_classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(n_classes, (n,), generator=generator)
    z = torch.randn(n, h, generator=generator, dtype=torch.float64)
    return z + 2 * torch.randn(n_classes, h, generator=generator)[y].double() + 50, y


def row_by_row(z: Tensor, y: Tensor, half_life: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Learn weighted means and scatter as they are defined, one sample after the other."""
    keep = 0.5 ** (1 / half_life)
    n_classes, h = int(y.max()) + 1, z.shape[1]
    mean, scatter, weight = np.zeros((n_classes, h)), np.zeros((h, h)), 0.0
    sums, squares = np.zeros(n_classes), np.zeros(n_classes)  # of the weights of a class
    for sample, c in zip(z.numpy(), y.tolist(), strict=True):
        worth = sums[c] ** 2 / squares[c] if sums[c] else 0.0
        v = sample - mean[c]
        scatter = keep * scatter + worth / (worth + 1) * np.outer(v, v)
        weight = keep * weight + 1
        sums[c], squares[c] = keep * sums[c] + 1, keep**2 * squares[c] + 1
        mean[c] += v / sums[c]
    return mean, scatter, weight


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    half_life=st.sampled_from([0.3, 1, 7.5, 100, 1e6]),
    ends=st.sets(st.integers(1, 89), max_size=6),
)
def test_it_is_the_loop_over_samples_whatever_the_batches(
    seed: int, half_life: float, ends: set[int]
) -> None:
    z, y = draw(seed)
    statistics = FadingStatistics(4, 3, "pooled", half_life)
    for rows in np.split(np.arange(len(y)), sorted(ends)):
        statistics.add(z[rows], y[rows])
    mean, scatter, weight = row_by_row(z, y, half_life)
    np.testing.assert_allclose(statistics.mean[: len(mean)], mean, rtol=1e-10)
    covariance = statistics.pooled_scatter() / statistics.total
    np.testing.assert_allclose(covariance, scatter / weight, rtol=1e-7, atol=1e-9)


def test_counts_are_effective_ones() -> None:
    z, y = draw(0)
    statistics = FadingStatistics(4, 3, "pooled", half_life=20)
    statistics.add(z, y)
    weights = 0.5 ** (np.arange(len(y)) / 20)
    assert statistics.total == pytest.approx(weights.sum() ** 2 / np.square(weights).sum())
    assert float(statistics.count.sum()) == pytest.approx(statistics.total)
    assert statistics.overall_mean().numpy() == pytest.approx(
        (statistics.count / statistics.total @ statistics.mean).numpy()
    )


@every_fading_head
def test_one_that_hardly_fades_is_the_exact_head(name: str) -> None:
    z, y = draw(1)
    fading, exact = make_head(name, 4, half_life=1e12), make_head(name, 4)
    for head in (fading, exact):
        head.observe(z, y)
    torch.testing.assert_close(fading(z), exact(z), rtol=1e-6, atol=1e-6)


@every_fading_head
def test_it_follows_classes_that_move(name: str) -> None:
    """Three classes turn around the origin once; at the end each is where another began."""
    generator = torch.Generator().manual_seed(0)
    n = 3000
    y = torch.arange(n) % 3
    angle = 2 * math.pi * (y / 3 + torch.arange(n) / n * 0.6)
    z = 3 * torch.stack([angle.cos(), angle.sin()], dim=1)
    z += 0.5 * torch.randn(n, 2, generator=generator)
    exact, fading = make_head(name, 2), make_head(name, 2, half_life=30)
    right = dict.fromkeys((exact, fading), 0)
    for rows in torch.arange(n).split(60):
        for head in right:
            if rows[0] > 0:
                right[head] += int((head.predict(z[rows]) == y[rows]).sum())
            head.observe(z[rows], y[rows])
    assert right[fading] / (n - 60) > 0.98
    assert right[exact] / (n - 60) < 0.85


@every_fading_head
def test_a_class_that_does_not_return_stays(name: str) -> None:
    z, y = draw(2, n=60, n_classes=2)
    head = make_head(name, 4, half_life=5)
    head.observe(z, y)
    before = head.statistics.mean[0].clone()
    head.observe(z[y == 1].repeat(50, 1) + 1, y[y == 1].repeat(50))
    assert torch.equal(head.statistics.mean[0], before)
    assert set(head.predict(z).tolist()) == {0, 1}


@every_fading_head
def test_order_matters_so_it_neither_merges_nor_forgets(name: str) -> None:
    z, y = draw(3)
    head = make_head(name, 4, half_life=10)
    head.observe(z, y)
    assert head.abilities.linear
    assert not head.abilities.order_free
    for call in (lambda: head.merge(head), lambda: head.forget(z, y), lambda: head.forget_class(0)):
        with pytest.raises(UnsupportedError, match=r"what fades depends on .*without half_life"):
            call()
    layer = head.as_linear(torch.float64)
    assert torch.equal(layer(z).argmax(1), head.predict(z))


@every_fading_head
def test_it_is_saved(name: str, tmp_path: object) -> None:
    z, y = draw(4)
    head = make_head(name, 4, half_life=10)
    head.observe(z[:50], y[:50])
    head.save(f"{tmp_path}/head")
    loaded = load_head(f"{tmp_path}/head")
    for one in (head, loaded):
        one.observe(z[50:], y[50:] + 3)
    assert_same_bits(snapshot(loaded), snapshot(head))
    assert torch.equal(loaded(z), head(z))


@every_fading_head
@pytest.mark.parametrize("bad", [0, -1, "10", math.nan, math.inf, True])
def test_bad_half_lives_are_refused(name: str, bad: object) -> None:
    with pytest.raises(OptionError, match="half_life must be above 0, or None"):
        make_head(name, 4, half_life=bad)


def test_half_life_goes_with_one_scatter_and_not_with_the_paper() -> None:
    for name in ("slda", "ridge"):
        with pytest.raises(OptionError, match="half_life needs one scatter"):
            make_head(name, 4, half_life=10, per_class_scatter=True)
    with pytest.raises(OptionError, match="preset 'exact'"):
        make_head("slda", 4, half_life=10, preset="paper")
