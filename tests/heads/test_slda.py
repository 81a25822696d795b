"""The slda head against scikit-learn's LDA and OAS, and against the paper's loop over samples."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import OAS
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from lastlayer.errors import DataError, UnsupportedError
from lastlayer.heads import SldaHead, make_head
from lastlayer.heads.statistics.covariance import shrink

sizes = given(
    n_classes=st.integers(2, 5),
    h=st.integers(1, 8),
    offset=st.sampled_from([0.0, 100.0]),
    seed=st.integers(0, 2**31),
)


def draw(n_classes: int, h: int, offset: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Give features whose classes and directions differ, in random order, and queries."""
    random = np.random.default_rng(seed)
    y = random.permutation(
        np.concatenate([np.arange(n_classes), random.integers(n_classes, size=60)])
    )
    noise = random.normal(size=(len(y), h)) @ random.normal(size=(h, h))
    z = noise + 2 * random.normal(size=(n_classes, h))[y] + offset
    queries = 3 * random.normal(size=(30, h)) + offset
    return torch.from_numpy(z), torch.from_numpy(y), torch.from_numpy(queries)


def up_to_a_shift(logits: Tensor | np.ndarray) -> np.ndarray:
    """Take a sample's mean logit off: what all classes share decides nothing."""
    logits = np.asarray(logits)
    return logits - logits.mean(axis=1, keepdims=True)


def assert_close(got: Tensor | np.ndarray, expected: Tensor | np.ndarray, rtol: float) -> None:
    expected = np.asarray(expected)
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def scikit_learn(z: Tensor, y: Tensor, shrinkage: float) -> LinearDiscriminantAnalysis:
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
    lda.fit(z.numpy(), y.numpy())
    if len(lda.classes_) == 2:  # it keeps only the difference of the two rows: undo that
        lda.coef_ = np.concatenate([-lda.coef_, lda.coef_]) / 2
        lda.intercept_ = np.concatenate([-lda.intercept_, lda.intercept_]) / 2
    return lda


@settings(max_examples=30)
@sizes
@pytest.mark.parametrize("prior", ["uniform", "empirical"])
def test_it_equals_scikit_learns_lda(
    prior: str, n_classes: int, h: int, offset: float, seed: int
) -> None:
    z, y, queries = draw(n_classes, h, offset, seed)
    shrinkage = 0.05
    head = make_head("slda", h, shrinkage=shrinkage, prior=prior)
    head.observe(z, y)
    lda = scikit_learn(z, y, shrinkage)
    expected = queries.numpy() @ lda.coef_.T + lda.intercept_
    if prior == "uniform":
        expected -= np.log(lda.priors_)
    assert_close(up_to_a_shift(head(queries)), up_to_a_shift(expected), rtol=1e-8)


@settings(max_examples=30)
@sizes
def test_its_shrinkage_is_scikit_learns_oas(
    n_classes: int, h: int, offset: float, seed: int
) -> None:
    z, y, queries = draw(n_classes, h, offset, seed)
    residuals = z - torch.stack([z[y == c].mean(dim=0) for c in y.tolist()])
    oas = OAS(assume_centered=True).fit(residuals.numpy())
    by_oas, by_number = make_head("slda", h), make_head("slda", h, shrinkage=float(oas.shrinkage_))
    for head in (by_oas, by_number):
        head.observe(z, y)
    assert_close(by_oas(queries), by_number(queries), rtol=1e-9)
    covariance = by_oas.statistics.pooled_scatter() / len(y)
    assert_close(shrink(covariance, by_oas.statistics, "oas"), oas.covariance_, rtol=1e-9)


def loop_over_samples(z: Tensor, y: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Learn means and Σ as the paper's code does: Σ ← (t·Σ + Δ)/(t+1), sample by sample."""
    means = torch.zeros(n_classes, z.shape[1], dtype=torch.float64)
    counts = torch.zeros(n_classes, dtype=torch.float64)
    sigma = torch.zeros(z.shape[1], z.shape[1], dtype=torch.float64)
    for t, (sample, c) in enumerate(zip(z, y, strict=True)):
        v = sample - means[c]
        delta = torch.outer(v, v) * t / (t + 1)
        sigma = (t * sigma + delta) / (t + 1)
        means[c] += v / (counts[c] + 1)
        counts[c] += 1
    return means, sigma


@settings(max_examples=30)
@given(
    n_classes=st.integers(1, 5),
    h=st.integers(1, 6),
    seed=st.integers(0, 2**31),
    ends=st.sets(st.integers(1, 60), max_size=6),
)
def test_the_paper_preset_equals_the_loop_over_samples(
    n_classes: int, h: int, seed: int, ends: set[int]
) -> None:
    z, y, queries = draw(n_classes, h, 0.0, seed)
    head = make_head("slda", h, preset="paper")
    for rows in np.split(np.arange(len(y)), sorted(ends)):
        head.observe(z[rows], y[rows])
    means, sigma = loop_over_samples(z, y, n_classes)
    inverse = torch.linalg.inv((1 - 1e-4) * sigma + 1e-4 * torch.eye(h, dtype=torch.float64))
    weight = means @ inverse
    bias = -0.5 * (means * weight).sum(dim=1)
    assert_close(head.statistics.pooled_scatter() / len(y), sigma, rtol=1e-10)
    assert_close(head(queries), queries @ weight.mT + bias, rtol=1e-8)


@pytest.mark.parametrize("preset", ["exact", "paper"])
def test_it_is_a_linear_layer(preset: str) -> None:
    z, y, queries = draw(4, 5, 100.0, seed=0)
    head = make_head("slda", 5, n_classes=6, preset=preset)
    head.observe(z, y)
    linear = head.as_linear(torch.float64)
    assert isinstance(linear, torch.nn.Linear)
    got, expected = linear(queries).detach(), head(queries)
    assert torch.equal(linear(queries).argmax(dim=1), head.predict(queries))
    if preset == "exact":
        assert (got[:, 4:] == -torch.inf).all()
        got, expected = got[:, :4], expected[:, :4]
    assert_close(got, expected, rtol=1e-8)


def test_forgetting_a_class_needs_its_own_scatter() -> None:
    z, y, _ = draw(3, 4, 0.0, seed=0)
    pooled = make_head("slda", 4)
    pooled.observe(z, y)
    with pytest.raises(UnsupportedError, match=r"forget the samples.*per_class_scatter=True"):
        pooled.forget_class(1)
    pooled.forget(z[y == 1], y[y == 1])
    own = make_head("slda", 4, per_class_scatter=True)
    own.observe(z, y)
    with pytest.raises(ValueError, match=r"a class must be from 0 to 2, got 3"):
        own.forget_class(3)
    own.forget_class(1)
    torch.testing.assert_close(own(z), pooled(z), rtol=1e-9, atol=1e-9)


def test_the_paper_preset_cannot_forget_or_merge() -> None:
    z, y, _ = draw(3, 4, 0.0, seed=0)
    head = make_head("slda", 4, preset="paper")
    head.observe(z, y)
    for call in (lambda: head.forget(z, y), lambda: head.forget_class(0), lambda: head.merge(head)):
        with pytest.raises(UnsupportedError, match=r"depends on the order .* preset 'exact' can"):
            call()


def test_a_singular_covariance_is_reported_and_may_be_mended() -> None:
    head = make_head("slda", 5, shrinkage=0)
    z, y, queries = draw(2, 5, 0.0, seed=0)
    head.observe(z[:4], y[:4])
    for _ in range(2):
        with pytest.raises(DataError, match=r"singular one of 4 samples with 5 features.*'oas'"):
            head(queries)
    head.observe(z, y)
    assert head(queries).isfinite().all()


def test_one_sample_of_each_class_is_enough() -> None:
    head = make_head("slda", 2)
    head.observe(torch.tensor([[0.0, 0.0], [4.0, 0.0]]), torch.tensor([0, 1]))
    assert head.predict(torch.tensor([[1.0, 9.0], [3.0, -9.0]])).tolist() == [0, 1]


def test_repeated_samples_are_rounding_not_variance() -> None:
    z = torch.tensor([[0.1, 0.7], [0.3, 0.9]], dtype=torch.float64)
    once, often = make_head("slda", 2), make_head("slda", 2)
    once.observe(z, torch.tensor([0, 1]))
    for i in range(99):
        often.observe(z[[i % 2]], torch.tensor([i % 2]))
        often.observe(z[[1 - i % 2]], torch.tensor([1 - i % 2]))
    torch.testing.assert_close(often(z), once(z), rtol=1e-9, atol=1e-12)


def test_the_priors_are_the_shares_of_the_classes() -> None:
    z, y, queries = draw(2, 3, 0.0, seed=0)
    uniform, empirical = make_head("slda", 3), make_head("slda", 3, prior="empirical")
    for head in (uniform, empirical):
        head.observe(z, y)
    shares = (y.bincount().double() / len(y)).log().expand(30, 2)
    assert isinstance(uniform, SldaHead)
    torch.testing.assert_close(empirical(queries) - uniform(queries), shares)


@pytest.mark.parametrize("preset", ["exact", "paper"])
def test_a_narrower_head_still_learns(preset: str) -> None:
    """``head.float()`` must neither lose what comes after nor what was before."""
    z, y = torch.randn(60, 4), torch.arange(60) % 3
    head, wide = (make_head("slda", 4, preset=preset) for _ in range(2))
    for part in (head, wide):
        part.observe(z[:30], y[:30])
    head.float()
    for part in (head, wide):
        part.observe(z[30:], y[30:])
    assert_close(head(z).double(), wide(z), rtol=1e-4)


def test_a_linear_layer_fits_an_ordinary_network() -> None:
    z, y = torch.randn(60, 4), torch.arange(60) % 3
    head = make_head("slda", 4)
    head.observe(z, y)
    assert torch.equal(head.as_linear()(z).argmax(dim=1), head.predict(z))


@pytest.mark.parametrize("seed", range(6))
def test_what_forgetting_leaves_of_a_flat_direction_is_rounding(seed: int) -> None:
    """Where the rest of a direction is negative by rounding, it counts as zero."""
    random = torch.Generator().manual_seed(seed)
    stays, goes = (torch.randn(12, 3, generator=random, dtype=torch.float64) for _ in "ab")
    stays[:, 2] = 1.0
    y = torch.arange(12) % 2
    head = make_head("slda", 3, shrinkage=1e-12)
    head.observe(torch.cat([stays, 1e3 * goes]), torch.cat([y, y]))
    head.forget(1e3 * goes, y)
    assert head.predict(stays).shape == (12,)
