"""Weights of samples: a whole weight is so many copies of the row, and 0 is none."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from streams import (
    EVERY_HEAD,
    H,
    assert_same_bits,
    blobs,
    every_head,
    make_head,
    snapshot,
    trained,
)
from torch import Tensor

from lastlayer.catalogue.head_cards import card_of
from lastlayer.errors import DataError, ShapeError, UnsupportedError
from lastlayer.heads import Head, load_head

STATISTICS: list[tuple[str, dict[str, Any]]] = [
    ("mean", {}), ("slda", {}), ("slda", {"per_class_scatter": True, "prior": "empirical"}),
    ("ridge", {}), ("ridge", {"weigh": "classes"}), ("qda", {}), ("qda", {"diagonal": True}),
    ("sampled_linear", {}), ("random_ridge", {}), ("random_slda", {}),
]  # fmt: skip
every_sum = pytest.mark.parametrize(("name", "options"), STATISTICS)


def begun(name: str, z: Tensor, **options: Any) -> Head:
    """Make a head whose map, if it has one, is fixed."""
    head = make_head(name, z.shape[1], **options)
    if head.rows_to_begin:
        rows = torch.randn(1000, z.shape[1], generator=torch.Generator().manual_seed(1))
        head = head.fresh(first=rows)
    return head


def noisy(n_classes: int = 3) -> tuple[Tensor, Tensor]:
    z, y = blobs(n_classes=n_classes)
    return z + torch.randn(z.shape, generator=torch.Generator().manual_seed(3)), y


@every_head
def test_a_whole_weight_is_so_many_copies_or_it_does_not_say_so(name: str, preset: str) -> None:
    z, y = noisy()
    weight = torch.arange(len(y)) % 4  # some rows weigh nothing
    rows = torch.arange(len(y)).repeat_interleave(weight)
    head, copies = begun(name, z, preset=preset), begun(name, z, preset=preset)
    if not head.abilities.weighs:
        with pytest.raises(UnsupportedError, match=r"cannot take weights.*these heads can: "):
            head.observe(z, y, weight)
        return
    head.observe(z, y, weight)
    copies.observe(z[rows], y[rows])
    torch.testing.assert_close(head(z), copies(z), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(head.novelty(z), copies.novelty(z), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.probabilities(z), copies.probabilities(z), rtol=1e-5, atol=1e-6)
    if head.class_counts is not None:
        assert head.class_counts.dtype == torch.int64
        assert head.class_counts.tolist() == y[rows].bincount().tolist()


@every_sum
@pytest.mark.parametrize("size", [1, 7, 60])
def test_order_and_batches_do_not_matter(name: str, options: dict[str, Any], size: int) -> None:
    z, y = noisy()
    weight = 0.1 + torch.rand(len(y), generator=torch.Generator().manual_seed(2)).double()
    one, other = begun(name, z, **options), begun(name, z, **options)
    one.observe(z, y, weight)
    for some in torch.arange(len(y)).flip(0).split(size):
        other.observe(z[some], y[some], weight[some])
    torch.testing.assert_close(other(z), one(z), rtol=1e-8, atol=1e-8)


@every_sum
def test_weights_merge_forget_and_go_through_a_file(
    name: str, options: dict[str, Any], tmp_path: Any
) -> None:
    z, y = noisy(n_classes=4)
    weight = 0.1 + torch.rand(len(y), generator=torch.Generator().manual_seed(2)).double()
    some = torch.arange(len(y)) % 3 == 0
    whole, left, right = (begun(name, z, **options) for _ in range(3))
    whole.observe(z, y, weight)
    left.observe(z[some], y[some], weight[some])
    right.observe(z[~some], y[~some], weight[~some])
    merged = left.merge(right)
    torch.testing.assert_close(merged(z), whole(z), rtol=1e-8, atol=1e-8)
    merged.forget(z[some], y[some], weight[some])
    torch.testing.assert_close(merged(z), right(z), rtol=1e-7, atol=1e-7)
    with pytest.raises(DataError, match="cannot forget"):
        merged.forget(z, y, weight)
    merged.save(tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    assert_same_bits(snapshot(loaded), snapshot(merged))
    assert not loaded.abilities.leaves_out
    last = ~some & (y != 0)
    loaded.forget(z[last], y[last], weight[last])
    assert loaded.seen.tolist() == [True, False, False, False]
    rest = ~some & (y == 0)
    loaded.forget(z[rest], y[rest], weight[rest])
    assert not loaded.seen.any()


@settings(deadline=None)
@given(
    n=st.integers(2, 12),
    seed=st.integers(0, 99),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    shift=st.sampled_from([0.0, 1e3]),
)
def test_statistics_are_the_weighted_ones(n: int, seed: int, scale: float, shift: float) -> None:
    """Means and scatters by numpy, of rows that are copies, alone in their class, or far away."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(n, 3)).round(1) * scale + shift
    y, w = random.integers(0, 4, n), random.choice([0.25, 1.0, 2.5], n)
    heads = [make_head("slda", 3), make_head("qda", 3), make_head("qda", 3, diagonal=True)]
    for head in (*heads, make_head("mean", 3)):
        order = random.permutation(n)
        for rows in np.array_split(order, 3):
            head.observe(torch.from_numpy(z[rows]), torch.from_numpy(y[rows]), w[rows].tolist())
        s = head.statistics
        pooled = np.zeros((3, 3))
        for c in np.unique(y):
            own = y == c
            mean = np.average(z[own], axis=0, weights=w[own])
            scatter = (z[own] - mean).T @ ((z[own] - mean) * w[own, None])
            pooled += scatter
            exact: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-12 * (scale + shift) ** 2 * n}
            np.testing.assert_allclose(s.count[c], w[own].sum())
            np.testing.assert_allclose(s.mean[c], mean, **exact)
            if s.kind == "per_class":
                np.testing.assert_allclose(s.scatter[c].tril(), np.tril(scatter), **exact)
            elif s.kind == "diagonal":
                np.testing.assert_allclose(s.scatter[c], np.diag(scatter), **exact)
            elif s.kind == "none":
                np.testing.assert_allclose(s.spread[c], np.trace(scatter), **exact)
        if s.kind == "pooled":
            np.testing.assert_allclose(s.scatter.tril(), np.tril(pooled), **exact)


def test_ridge_is_that_of_scikit_learn() -> None:
    z, y = noisy()
    weight = torch.rand(len(y), generator=torch.Generator().manual_seed(2)).double()
    head = make_head("ridge", H, penalty=0.5)
    head.observe(z, y, weight)
    other = Ridge(alpha=head.penalty if not head(z).isnan().any() else 0)
    other.fit(z.double(), torch.eye(3)[y].double(), sample_weight=weight.numpy())
    np.testing.assert_allclose(head(z), other.predict(z.double()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("weight", "error"),
    [
        ([1.0], ShapeError),
        (torch.ones(60, 1), ShapeError),
        ([-1.0] * 60, DataError),
        ([float("nan")] * 60, DataError),
        ([float("inf")] * 60, DataError),
        (["a"] * 60, DataError),
        ("heavy", DataError),
        (torch.ones(60).to_sparse(), DataError),
    ],
)
def test_what_is_no_weight_is_refused(weight: Any, error: type[Exception]) -> None:
    z, y = noisy()
    for name in ("slda", "linear", "random_ridge"):
        head = trained(name, "exact")
        before = snapshot(head)
        for call in (head.observe, head.forget):
            if call == head.forget and not head.abilities.forgets:
                continue
            with pytest.raises(error, match="sample_weight must be"):
                call(z, y, weight)
        assert_same_bits(snapshot(head), before)


def test_rows_without_weight_change_nothing_and_bring_no_class() -> None:
    z, y = noisy()
    for name, preset in EVERY_HEAD:
        head = trained(name, preset)
        if head.abilities.weighs and card_of(name).name in ("slda", "cosine", "mean"):
            before = snapshot(head)
            head.observe(z, y + 3, torch.zeros(len(y)))
            assert_same_bits(snapshot(head), before)


def test_rows_with_weights_fix_a_map_at_once() -> None:
    z, y = noisy()
    head = make_head("random_ridge", H)
    head.observe(z[:9], y[:9])
    head.observe(z[9:], y[9:], torch.full((len(y) - 9,), 2.0))
    assert head.rows_to_begin == 0
    assert head.class_counts is not None
    assert int(head.class_counts.sum()) == 2 * len(y) - 9
