"""The mean head against scikit-learn's NearestCentroid."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestCentroid

from lastlayer.heads import make_head


@settings(max_examples=30)
@given(
    n_classes=st.integers(2, 5),
    h=st.integers(1, 6),
    offset=st.sampled_from([0.0, 1e4]),
    seed=st.integers(0, 2**31),
)
def test_it_equals_nearest_centroid(n_classes: int, h: int, offset: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), random.integers(n_classes, size=20)])
    z = random.normal(size=(len(y), h)) + 2 * random.normal(size=(n_classes, h))[y] + offset
    queries = 3 * random.normal(size=(30, h)) + offset
    head = make_head("mean", h)
    head.observe(torch.from_numpy(z), torch.from_numpy(y))
    reference = NearestCentroid().fit(z, y)
    expected = -np.linalg.norm(queries[:, None] - reference.centroids_, axis=2)
    np.testing.assert_allclose(head(torch.from_numpy(queries)), expected, rtol=1e-9)
    if offset == 0:  # scikit-learn's own distances lose their digits far from zero
        np.testing.assert_array_equal(
            head.predict(torch.from_numpy(queries)), reference.predict(queries)
        )


def test_distances_keep_their_digits_far_from_zero() -> None:
    z = torch.tensor([[1e6, 1e6], [1e6 + 1, 1e6]], dtype=torch.float64)
    head = make_head("mean", 2)
    head.observe(z, torch.tensor([0, 1]))
    assert head(z).tolist() == [[0, -1], [-1, 0]]


@pytest.mark.parametrize(("preset", "winner"), [("exact", 1), ("paper", 0)])
def test_a_class_without_data_wins_only_in_the_paper(preset: str, winner: int) -> None:
    head = make_head("mean", 2, n_classes=2, preset=preset)
    head.observe(torch.tensor([[9.0, 9.0]]), torch.tensor([1]))
    assert head.predict(torch.tensor([[1.0, 1.0]])).tolist() == [winner]


def test_a_forgotten_class_may_come_back() -> None:
    head = make_head("mean", 1)
    head.observe(torch.tensor([[1.0], [5.0]]), torch.tensor([0, 1]))
    head.forget_class(0)
    assert head(torch.tensor([[1.0]])).tolist() == [[-torch.inf, -4.0]]
    head.observe(torch.tensor([[2.0]]), torch.tensor([0]))
    assert head(torch.tensor([[1.0]])).tolist() == [[-1.0, -4.0]]


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_many_queries_are_answered_as_one_by_one(size: float) -> None:
    """More than 65,536 numbers are compared by a product, fewer by their differences."""
    random = torch.Generator().manual_seed(0)
    z = size * torch.randn(300, 40, generator=random, dtype=torch.float64)
    head = make_head("mean", 40)
    head.observe(z, torch.arange(300) % 60)
    alone = torch.cat([head(row) for row in z.split(1)])
    torch.testing.assert_close(head(z), alone, rtol=1e-9, atol=0)
