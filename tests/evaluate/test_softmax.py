"""The reference against scikit-learn's logistic regression; its weight decay is chosen unseen."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from lastlayer.errors import DataError
from lastlayer.evaluate.softmax import DECAYS, Reference, _Problem, reference
from lastlayer.heads.maps.feature_map import make_map


def draw(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=generator)
    centres = 3 * torch.randn(3, 4, generator=torch.Generator().manual_seed(9))
    return centres[y] + torch.randn(n, 4, generator=generator) * torch.arange(1, 5) + 7, y


def test_it_is_scikit_learns_logistic_regression() -> None:
    z, y = draw(500, seed=0)
    problem = _Problem(z, y, 3, None, torch.float64)
    weight, converged, _ = problem.train(problem.start(), 0.01)
    assert converged
    rows = z.double().numpy()
    scaled = (rows - rows.mean(0)) / np.sqrt(problem.level)
    regression = LogisticRegression(C=1 / (0.01 * 500), tol=1e-8, max_iter=1000).fit(scaled, y)
    expected = regression.decision_function(scaled)
    got = problem.layer(weight)(z.double()).detach().numpy()
    got, expected = (x - x.mean(axis=1, keepdims=True) for x in (got, expected))
    np.testing.assert_allclose(got, expected, atol=1e-3)


@pytest.mark.parametrize("kind", [None, "fourier"])
def test_it_converges_and_follows_from_its_seed(kind: str | None) -> None:
    z, y = draw(600, seed=0)
    feature_map = None if kind is None else make_map(kind, 4, 50).fit(z)
    one, same = (reference(z, y, 3, map=feature_map, seed=1) for _ in range(2))
    assert isinstance(one, Reference)
    assert one.converged
    assert one.decay in DECAYS
    assert torch.equal(one.layer.weight, same.layer.weight)
    test_z, test_y = draw(600, seed=5)
    assert (one.predict(test_z) == test_y).double().mean() > 0.5


@pytest.mark.parametrize("quick", [True, False])
def test_a_class_without_rows_never_wins(quick: bool) -> None:
    z, y = draw(300, seed=0)
    found = reference(z, y, n_classes=5, quick=quick)
    assert found.layer.bias.isinf().tolist() == [False] * 3 + [True] * 2
    assert set(found.predict(z).tolist()) <= {0, 1, 2}


def test_the_quick_one_is_nearly_the_same() -> None:
    z, y = draw(600, seed=0)
    quick, exact = (reference(z, y, 3, quick=quick) for quick in (True, False))
    assert (quick.predict(z) == exact.predict(z)).double().mean() > 0.99


def test_rounding_may_leave_the_covariance_indefinite() -> None:
    z, y = draw(600, seed=0)
    found = []
    for lost in (0.0, 2e-4):  # of the level: more than is added for the smallest decay
        problem = _Problem(torch.cat([z, torch.zeros(600, 1)], dim=1), y, 3, None, torch.float64)
        problem.covariance.diagonal()[-1] -= lost * problem.level
        weight, converged, _ = problem.train(problem.start(), DECAYS[-1])
        assert converged
        found.append(weight)
    torch.testing.assert_close(found[0], found[1], atol=0.02, rtol=0.02)


def test_constant_features_are_answered_and_too_few_rows_refused() -> None:
    found = reference(torch.ones(20, 3), torch.tensor([0, 1, 1, 1] * 5), n_classes=2)
    assert found.predict(torch.randn(4, 3)).tolist() == [1] * 4
    with pytest.raises(DataError, match="at least two rows, one label each, got 1, 1"):
        reference(torch.ones(1, 3), torch.tensor([0]), n_classes=2)
