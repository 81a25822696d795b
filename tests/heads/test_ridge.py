"""The ridge head against scikit-learn's Ridge; how it chooses its penalty is in test_penalty."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import Tensor

from lastlayer.errors import DataError, OptionError, UnsupportedError
from lastlayer.heads import make_head
from lastlayer.heads.statistics.least_squares import (
    Band,
    Eigenbasis,
    LowRank,
    Moments,
    Reduced,
)
from lastlayer.heads.statistics.penalty import choose_penalty

sizes = given(
    n_classes=st.integers(2, 5),
    h=st.sampled_from([1, 2, 7, 40]),
    offset=st.sampled_from([0.0, 100.0]),
    seed=st.integers(0, 2**31),
)


def draw(n_classes: int, h: int, offset: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Give classes of unequal size, in random order, and queries."""
    random = np.random.default_rng(seed)
    y = np.concatenate([np.arange(n_classes), random.integers(n_classes, size=80) // 2])
    z = random.normal(size=(len(y), h)) @ random.normal(size=(h, h))
    z += 2 * random.normal(size=(n_classes, h))[y] + offset
    queries = 3 * random.normal(size=(30, h)) + offset
    return torch.from_numpy(z), torch.from_numpy(y), torch.from_numpy(queries)


def close(got: Tensor, expected: np.ndarray, rtol: float = 1e-8) -> None:
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def level(z: Tensor, weight: Tensor) -> float:
    """Compute tr(G)/h of weighted samples."""
    centred = z - weight @ z / weight.sum()
    return float((weight @ centred.square()).sum() / z.shape[1])


@settings(max_examples=30)
@sizes
@pytest.mark.parametrize("penalty", [1e-3, 1.0])
def test_it_equals_scikit_learns_ridge(
    penalty: float, n_classes: int, h: int, offset: float, seed: int
) -> None:
    z, y, queries = draw(n_classes, h, offset, seed)
    head = make_head("ridge", h, penalty=penalty)
    head.observe(z, y)
    alpha = penalty * level(z, torch.ones(len(z), dtype=torch.float64))
    ridge = Ridge(alpha=alpha, solver="svd").fit(z.numpy(), np.eye(n_classes)[y])
    close(head(queries), ridge.predict(queries.numpy()))


@settings(max_examples=30)
@sizes
@pytest.mark.parametrize("own", [True, False])
def test_classes_weigh_the_same(
    own: bool, n_classes: int, h: int, offset: float, seed: int
) -> None:
    """With a scatter for each class it is scikit-learn's with sample weights 1/n_c.

    With one for all it is the same if all classes have the same scatter around their means.
    """
    z, y, queries = draw(n_classes, h, offset, seed)
    if not own:  # each class is the same cloud, shown once or twice
        cloud = z[:20] - z[:20].mean(dim=0)
        centres = z[:n_classes]
        times = [1 + c % 2 for c in range(n_classes)]
        z = torch.cat([(cloud + centres[c]).repeat(times[c], 1) for c in range(n_classes)])
        y = torch.cat([torch.full((20 * times[c],), c) for c in range(n_classes)])
    weight = y.bincount().double().reciprocal()[y]
    n = n_classes**2 / float(y.bincount().double().reciprocal().sum())
    weight *= n / n_classes
    head = make_head("ridge", h, penalty=0.1, weigh="classes", per_class_scatter=own)
    head.observe(z, y)
    ridge = Ridge(alpha=0.1 * level(z, weight), solver="cholesky")
    ridge.fit(z.numpy(), np.eye(n_classes)[y], sample_weight=weight.numpy())
    close(head(queries), ridge.predict(queries.numpy()), rtol=1e-6)


@pytest.mark.parametrize("rank", [1, 10, 40, 70])
@pytest.mark.parametrize("reduction", [Band, LowRank])
def test_all_reductions_agree(reduction: type[Reduced], rank: int) -> None:
    """The band is of 32: of 70 features there are three blocks, the last of 6."""
    x = torch.randn(rank, 70, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gram, cross = x.mT @ x, x.mT @ torch.eye(rank, 3, dtype=torch.float64)
    one, other = Eigenbasis(gram, cross), reduction(gram, cross)
    moments = Moments(gram, cross, 3.0, 2.0 * rank)
    assert choose_penalty(moments, one) == choose_penalty(moments, other)
    penalties = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64)
    for ours, theirs in zip(one.fits(penalties), other.fits(penalties), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    for penalty in penalties.tolist():
        torch.testing.assert_close(one.solve(penalty), other.solve(penalty), rtol=1e-9, atol=1e-10)


def test_unseen_classes_and_gaps_change_nothing() -> None:
    z, y, queries = draw(3, 7, 0.0, seed=0)
    dense, gaps = make_head("ridge", 7), make_head("ridge", 7, n_classes=9)
    dense.observe(z, y)
    gaps.observe(z, 2 * y + 1)
    torch.testing.assert_close(gaps(queries)[:, [1, 3, 5]], dense(queries))


def test_forgetting_a_class_needs_its_own_scatter() -> None:
    z, y, queries = draw(3, 4, 0.0, seed=0)
    pooled, own = make_head("ridge", 4), make_head("ridge", 4, per_class_scatter=True)
    for head in (pooled, own):
        head.observe(z, y)
    with pytest.raises(UnsupportedError, match=r"forget the samples.*per_class_scatter=True"):
        pooled.forget_class(1)
    pooled.forget(z[y == 1], y[y == 1])
    own.forget_class(1)
    torch.testing.assert_close(own(queries), pooled(queries), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weigh", ["samples", "classes"])
def test_limit_cases_are_answered(weigh: str) -> None:
    """One class only; nothing varies; one sample; fewer samples than classes or features."""
    queries = torch.randn(5, 40)
    one_class = make_head("ridge", 40, weigh=weigh)
    one_class.observe(torch.randn(9, 40), torch.full((9,), 2))
    assert one_class.predict(queries).tolist() == [2] * 5
    constant = make_head("ridge", 40, weigh=weigh)
    constant.observe(torch.full((7, 40), 0.1), torch.tensor([0, 1, 1, 1, 2, 2, 3]))
    shares = [1 / 7, 3 / 7, 2 / 7, 1 / 7] if weigh == "samples" else [1 / 4] * 4
    torch.testing.assert_close(constant(queries)[0], torch.tensor(shares, dtype=torch.float64))
    few = make_head("ridge", 40, n_classes=100, weigh=weigh)
    for i in range(3):
        few.observe(torch.eye(40)[i : i + 1], torch.tensor([30 * i]))
        assert few(queries)[:, few.seen].isfinite().all()
    assert few.predict(torch.eye(40)[:3]).tolist() == [0, 30, 60]


def test_no_penalty_needs_samples() -> None:
    head = make_head("ridge", 40, penalty=0)
    head.observe(torch.randn(20, 40), torch.arange(20) % 2)
    with pytest.raises(DataError, match=r"singular one of 20 samples with 40 features.*'auto'"):
        head(torch.randn(1, 40))


@pytest.mark.parametrize("bad", [{"penalty": -1}, {"penalty": "cv"}, {"weigh": "rows"}])
def test_bad_options_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="must"):
        make_head("ridge", 2, **bad)


@sizes
@settings(max_examples=15)
def test_classes_weigh_the_same_in_the_spread(
    n_classes: int, h: int, offset: float, seed: int
) -> None:
    """Σ‖target − mean‖² of one-hot targets of classes that weigh the same is n (1 − 1/C)."""
    z, y, _ = draw(n_classes, h, offset, seed)
    head = make_head("ridge", h, weigh="classes")
    head.observe(z, y)
    _, share, moments = head._by_class()
    known = int((share > 0).sum())
    assert moments.spread == pytest.approx(moments.n * (1 - 1 / known))
