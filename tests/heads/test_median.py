"""The median head against NumPy's median and scikit-learn's NearestCentroid."""

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
    batch=st.integers(1, 30),
    seed=st.integers(0, 2**31),
)
def test_it_measures_from_the_medians(n_classes: int, h: int, batch: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), random.integers(n_classes, size=20)])
    z = random.normal(size=(len(y), h)) + 2 * random.normal(size=(n_classes, h))[y]
    queries = torch.from_numpy(3 * random.normal(size=(30, h)))
    head = make_head("median", h)
    for start in range(0, len(y), batch):
        rows = slice(start, start + batch)
        head.observe(torch.from_numpy(z[rows]), torch.from_numpy(y[rows]))
        head(queries)  # medians are made anew only where data arrived
    medians = np.stack([np.median(z[y == c], axis=0) for c in range(n_classes)])
    np.testing.assert_array_equal(head.median, medians)
    # With metric="manhattan" the centroids are the medians.
    reference = NearestCentroid(metric="manhattan").fit(z, y)
    expected = -np.linalg.norm(queries.numpy()[:, None] - reference.centroids_, axis=2)
    np.testing.assert_allclose(head(queries), expected, rtol=1e-12)


@pytest.mark.parametrize(("preset", "median"), [("exact", 2.0), ("paper", 1.0)])
def test_an_even_number_has_two_middles(preset: str, median: float) -> None:
    head = make_head("median", 1, preset=preset)
    head.observe(torch.tensor([[0.0], [1.0], [3.0], [9.0]]), torch.zeros(4, dtype=torch.int64))
    assert head(torch.tensor([[median]])).tolist() == [[0.0]]


@pytest.mark.parametrize(("preset", "winner"), [("exact", 1), ("paper", 0)])
def test_a_class_without_data_wins_only_in_the_paper(preset: str, winner: int) -> None:
    head = make_head("median", 2, n_classes=2, preset=preset)
    head.observe(torch.tensor([[9.0, 9.0]]), torch.tensor([1]))
    assert head.predict(torch.tensor([[1.0, 1.0]])).tolist() == [winner]


def test_a_loaded_state_leaves_nothing_of_the_old_one() -> None:
    small, large = (make_head("median", 1, preset="paper") for _ in range(2))
    small.observe(torch.tensor([[4.0]]), torch.tensor([1]))
    large.observe(torch.tensor([[7.0], [8.0], [9.0]]), torch.tensor([0, 1, 2]))
    large(torch.tensor([[0.0]]))
    large.load_state_dict(small.state_dict())
    assert large(torch.tensor([[0.0]])).tolist() == [[0.0, -4.0]]
