"""Heads with a Gaussian for each class: qda against scikit-learn's, sampled_linear by its laws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB
from streams import assert_same_bits, snapshot
from torch import Tensor

from lastlayer.errors import DataError, OptionError
from lastlayer.heads import make_head
from lastlayer.heads.maps.feature_map import make_map

GAUSSIAN = (("qda", {}), ("qda", {"diagonal": True}), ("sampled_linear", {"steps": 60}))
every_gaussian = pytest.mark.parametrize(("name", "options"), GAUSSIAN)


def draw(seed: int, n_classes: int = 3, h: int = 4, n: int = 300) -> tuple[Tensor, Tensor]:
    """Give classes of unequal size and shape."""
    random = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(np.arange(n_classes), 5 * h), random.integers(n_classes, size=n)])
    shapes = random.normal(size=(n_classes, h, h))
    z = np.einsum("nh,nhk->nk", random.normal(size=(len(y), h)), shapes[y])
    z += 2 * random.normal(size=(n_classes, h))[y] + 10
    return torch.from_numpy(z), torch.from_numpy(y)


def scikit_learns_qda(z: np.ndarray, y: Tensor) -> QuadraticDiscriminantAnalysis:
    """Fit it, its scatter divided by n, as its newer versions do, and not by n − 1."""
    qda = QuadraticDiscriminantAnalysis(tol=0).fit(z, y.numpy())
    for c, scaling in enumerate(qda.scalings_):
        qda.scalings_[c] = scaling * z[y.numpy() == c].var(axis=0).sum() / scaling.sum()
    return qda


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), h=st.integers(1, 6), n_classes=st.integers(3, 5))
def test_without_a_shared_covariance_it_is_scikit_learns_qda(
    seed: int, h: int, n_classes: int
) -> None:
    z, y = draw(seed, n_classes, h)
    head = make_head("qda", h, nu=0, prior="empirical")
    head.observe(z, y)
    expected = scikit_learns_qda(z.numpy(), y).decision_function(z.numpy())
    np.testing.assert_allclose(head(z), expected, rtol=1e-6, atol=1e-6)


def test_behind_a_map_it_is_scikit_learns_too() -> None:
    z, y = draw(0, n=2000)
    phi = make_map("fourier", 4, 12).fit(z[:1000])(z)
    head = make_head("qda", 12, nu=0, prior="empirical")
    head.observe(phi, y)
    expected = scikit_learns_qda(phi.numpy(), y).decision_function(phi.numpy())
    np.testing.assert_allclose(head(phi), expected, rtol=1e-6, atol=1e-6)


def test_diagonal_is_scikit_learns_naive_bayes() -> None:
    z, y = draw(1)
    head = make_head("qda", 4, nu=0, prior="empirical", diagonal=True)
    head.observe(z, y)
    bayes = GaussianNB(var_smoothing=0).fit(z.numpy(), y.numpy())
    expected = bayes.predict_joint_log_proba(z.numpy()) + 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(head(z), expected, rtol=1e-9, atol=1e-9)


def test_with_much_of_the_shared_covariance_it_is_slda() -> None:
    z, y = draw(2)
    qda, slda = make_head("qda", 4, nu=1e12), make_head("slda", 4)
    for head in (qda, slda):
        head.observe(z, y)
    assert torch.equal(qda.predict(z), slda.predict(z))


def test_the_shared_covariance_counts_for_nu_samples() -> None:
    z, y = draw(3)
    head = make_head("qda", 4, nu=7.0)
    head.observe(z, y)
    shared = head._shared()
    own = torch.cov(z[y == 1].mT, correction=0)
    n = int((y == 1).sum())
    factor = head._factor(1, shared)
    torch.testing.assert_close(factor @ factor.mT, (n * own + 7 * shared) / (n + 7))


@every_gaussian
def test_order_batches_merging_and_forgetting(name: str, options: dict[str, object]) -> None:
    z, y = draw(4)
    make = lambda: make_head(name, 4, **options)  # noqa: E731
    at_once, in_parts, left, right, less = (make() for _ in range(5))
    at_once.observe(z, y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    for rows in order.split(37):
        in_parts.observe(z[rows], y[rows])
    left.observe(z[:100], y[:100])
    right.observe(z[100:], y[100:])
    less.observe(torch.cat([z, z[:50] + 1]), torch.cat([y, y[:50] % 2 + 2]))
    less.forget(z[:50] + 1, y[:50] % 2 + 2)
    for head in (in_parts, left.merge(right), less):
        torch.testing.assert_close(head(z)[:, :3], at_once(z), rtol=1e-6, atol=1e-6)


@every_gaussian
def test_limit_cases_are_answered(name: str, options: dict[str, object]) -> None:
    queries = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    one = make_head(name, 4, n_classes=9, **options)
    one.observe(torch.ones(1, 4), torch.tensor([7]))
    assert one.predict(queries).tolist() == [7] * 5
    constant = make_head(name, 4, **options)
    constant.observe(torch.full((6, 4), 0.3), torch.arange(6) % 3)
    assert constant(queries).isfinite().all()
    partly = make_head(name, 4, **options)
    partly.observe(torch.tensor([[1.0, 0, 0, 5], [2, 0, 0, 5], [3, 1, 0, 5]]), torch.arange(3))
    assert partly(queries).isfinite().all()


def test_qda_says_where_a_class_needs_more() -> None:
    head = make_head("qda", 4, nu=0)
    z, y = draw(5)
    head.observe(torch.cat([z, z[:2]]), torch.cat([y, torch.tensor([3, 3])]))
    with pytest.raises(DataError, match=r"class 3, of 2 samples with 4 .* singular: .*nu above"):
        head(z)


def test_what_does_not_fit_is_refused_before_it_is_allocated() -> None:
    match = r"take 2.1 GB, but 200 classes of 1280 features need 2.6 GB: {}"
    with pytest.raises(OptionError, match=match.format("keep only variances with diagonal=True")):
        make_head("qda", 1280, 200)
    with pytest.raises(OptionError, match=match.format("use a head that keeps one scatter")):
        make_head("sampled_linear", 1280, 200)
    make_head("qda", 1280, 200, diagonal=True)
    head = make_head("qda", 4, 2, budget=8 * 2 * 21)
    z, y = draw(6)
    head.observe(z[y < 2], y[y < 2])
    before = snapshot(head)
    with pytest.raises(OptionError, match="but 3 classes of 4 features"):
        head.observe(z, y)
    assert_same_bits(snapshot(head), before)
    with pytest.raises(OptionError, match="a budget in bytes must be at least 1"):
        make_head("qda", 4, budget=0)


def test_sampled_linear_finds_the_best_linear_layer() -> None:
    """Two Gaussians of unequal shape: the layer's loss is near that of Newton on many samples."""
    z, y = draw(7, n_classes=2, h=2, n=4000)
    head = make_head("sampled_linear", 2)
    head.observe(z, y)
    sampled = torch.nn.functional.cross_entropy(head(z), y)
    layer = torch.nn.Linear(2, 2, dtype=torch.float64)
    optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(layer(z - z.mean(0)), y)
        value.backward()
        return value

    optimiser.step(loss)
    assert sampled <= loss() + 0.005


def test_sampled_linear_is_a_function_of_statistics_and_seed() -> None:
    z, y = draw(8)
    one, other, seeded = (make_head("sampled_linear", 4, steps=50, seed=s) for s in (0, 0, 1))
    for head in (one, seeded):
        head.observe(z, y)
    other.load_state_dict(one.state_dict())
    first = one(z)
    one.observe(z, y)
    one(z)
    one.forget(z, y)
    assert torch.equal(other(z), first)
    torch.testing.assert_close(one(z), first, rtol=1e-8, atol=1e-8)
    assert not torch.equal(seeded(z), first)


@pytest.mark.parametrize("bad", [{"steps": 0}, {"seed": -1}, {"nu": -1}, {"prior": "flat"}])
def test_bad_options_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="must"):
        make_head("sampled_linear", 4, **bad)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_variances_of_streams_with_other_classes_are_merged(order: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(60, 4, generator=generator)
    y = torch.arange(60) % 3 * 2  # classes 0, 2 and 4
    whole = make_head("qda", 4, diagonal=True)
    whole.observe(z, y)
    parts = []
    for some in (y < 4, y == 4):
        part = make_head("qda", 4, diagonal=True)
        part.observe(z[some], y[some])
        parts.append(part)
    merged = parts[order[0]].merge(parts[order[1]])
    torch.testing.assert_close(merged(z), whole(z), rtol=1e-9, atol=1e-9)


def test_sampled_linear_weighs_classes_by_their_share() -> None:
    """Classes that cannot be told apart are as likely as they are frequent, or alike if so told."""
    z = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    y = (torch.arange(1000) % 10 == 0).long()
    for prior, share in (("empirical", 0.9), ("uniform", 0.5)):
        head = make_head("sampled_linear", 2, prior=prior)
        head.observe(z, y)
        chance = head(z[:100]).softmax(dim=1)[:, 0].mean().item()
        assert chance == pytest.approx(share, abs=0.05)


def test_the_shared_variances_are_drawn_to_their_level_by_hand() -> None:
    z, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    z = (z * torch.tensor([1.0, 3.0, 0.2])).double()
    head = make_head("qda", 3, diagonal=True, nu=1e12)  # so that each class has the shared ones
    head.observe(z, y)
    mean = torch.stack([z[y == c].mean(dim=0) for c in (0, 1)])
    variance = (z - mean[y]).square().mean(dim=0)
    few = 1 / (1 + 40 / 2)
    shared = variance * (1 - few) + variance.mean() * few
    away = (z[:, None] - mean).square() / shared
    expected = -0.5 * (away.sum(dim=2) + shared.log().sum())
    got = head(z)
    apart = got - expected
    torch.testing.assert_close(apart, apart[:1, :1].expand_as(apart), rtol=0, atol=1e-6)
