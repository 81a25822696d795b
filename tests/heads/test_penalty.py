"""The penalty of ridge: by hand, and with copies, which must not make it collapse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch import Tensor

from lastlayer.core.tensor_files import write_tensors
from lastlayer.heads import load_head, make_head
from lastlayer.heads.head_file import OLDEST, read_head
from lastlayer.heads.maps.feature_map import ROWS
from lastlayer.heads.statistics.least_squares import (
    Band,
    Eigenbasis,
    LowRank,
    Moments,
    Reduced,
)
from lastlayer.heads.statistics.penalty import FREE, NOISE, PENALTIES, choose_penalty, surprise
from lastlayer.heads.statistics.ridge import RidgeHead

Rows = tuple[Tensor, Tensor]


@pytest.fixture(scope="module")
def digits() -> tuple[Rows, Rows]:
    """Training and test rows."""
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    z, y = torch.from_numpy(bunch.data[order]), torch.from_numpy(bunch.target[order])
    return (z[:1200], y[:1200]), (z[1200:], y[1200:])


def right(head: Any, test: Rows) -> float:
    return 100 * float((head.predict(test[0]) == test[1]).double().mean())


def learned(name: str, *parts: Rows, **options: Any) -> Any:
    head = make_head(name, parts[0][0].shape[1], **options)
    for z, y in parts:
        head.observe(z, y)
    return head


def relative(head: RidgeHead) -> float:
    """Return the penalty chosen, relative to the mean eigenvalue."""
    by_class = head.options["weigh"] == "classes"
    moments = (head._by_class() if by_class else head._by_sample())[2]
    return head.penalty / moments.level


def likelihood(x: np.ndarray, targets: np.ndarray, penalty: float) -> float:
    """Compute −2 log N(0, σ²(I + XXᵀ/λ)) of the n − 1 contrasts of rows, which have no intercept.

    σ² is the most likely one, or the floor; the constant in which ours differs is left out.
    """
    n = len(x)
    contrasts = np.linalg.qr(np.c_[np.ones(n), np.eye(n)[:, 1:]])[0][:, 1:].T  # (n − 1, n)
    x, targets = contrasts @ x, contrasts @ targets
    shape = np.eye(n - 1) + x @ x.T / penalty
    error = float((targets * np.linalg.solve(shape, targets)).sum())
    variance = max(error, NOISE * np.square(targets).sum()) / (n - 1)
    return error / variance + np.linalg.slogdet(variance * shape)[1]


def cross_validation(x: np.ndarray, targets: np.ndarray, penalty: float) -> tuple[float, float]:
    """Compute the error of generalised cross-validation, and the freedom of the fit."""
    n = len(x)
    x = x - x.mean(axis=0)
    smoother = x @ np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T) + 1 / n
    free = float(np.trace(smoother))
    left = max(1 - free / n, 1e-12)
    return float(np.square(targets - smoother @ targets).sum()) / left**2, free


@settings(max_examples=25)
@given(
    n=st.sampled_from([6, 20, 39, 41, 60]),
    h=st.sampled_from([1, 7, 40]),
    copies=st.integers(0, 3),
    seed=st.integers(0, 2**31),
)
def test_it_is_what_the_rows_say(n: int, h: int, copies: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(n, h)), np.r_[0, 1, 2, random.integers(3, size=n - 3)]
    x += random.normal(size=(3, h))[y]
    x, y = np.r_[x, x[:copies]], np.r_[y, y[:copies]]
    head = learned("ridge", (torch.from_numpy(x), torch.from_numpy(y)))
    moments = head._by_sample()[2]
    kinds: list[type[Reduced]] = [Eigenbasis] if h < 3 else [Eigenbasis, Band, LowRank]
    penalties = (PENALTIES * moments.level).tolist()
    by_hand = np.array([likelihood(x, np.eye(3)[y], penalty) for penalty in penalties])
    errors, free = zip(*(cross_validation(x, np.eye(3)[y], p) for p in penalties), strict=True)
    for kind in kinds:
        reduced = kind(moments.gram, moments.cross)
        ours = surprise(moments, reduced.fits(PENALTIES * moments.level)).numpy()
        constant = (moments.n - 1) * np.log(moments.n - 1)
        np.testing.assert_allclose(ours - constant, by_hand, rtol=1e-6, atol=1e-4)
        likely = int(ours.argmin())
        safe = [k for k in range(likely) if free[k] <= FREE * len(x)]
        chosen = penalties.index(choose_penalty(moments, reduced))
        assert chosen in {*safe, likely}
        least = min(errors[k] for k in [*safe, likely])
        assert errors[chosen] <= least * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("n", [490, 501])
def test_copies_behind_a_map_change_little(digits: tuple[Rows, Rows], n: int) -> None:
    """Rows about as many as features: with a copy, cross-validation fell from 97 to 59 and 21."""
    (z, y), test = digits
    plain = learned("random_ridge", (z[:n], y[:n]), width=500)
    before = right(plain, test)
    assert before > 95.5
    for copies in (1, 5, n):  # n: every row learned twice
        head = learned("random_ridge", (z[:n], y[:n]), (z[:copies], y[:copies]), width=500)
        assert right(head, test) > before - 1


@pytest.mark.parametrize("n", [54, 60, 64, 65, 70])
def test_copies_change_little_on_the_features_themselves(digits: tuple[Rows, Rows], n: int) -> None:
    (z, y), test = digits
    before = right(learned("ridge", (z[:n], y[:n])), test)
    for copies in (1, 3):
        head = learned("ridge", (z[:n], y[:n]), (z[:copies], y[:copies]))
        assert right(head, test) > before - 2


@pytest.mark.parametrize("weigh", ["samples", "classes"])
@settings(max_examples=15, deadline=None)
@given(n=st.integers(40, 130), copied=st.lists(st.integers(0, 39), min_size=1, max_size=4))
def test_a_copy_never_costs_much(
    digits: tuple[Rows, Rows], weigh: str, n: int, copied: list[int]
) -> None:
    """Whatever the number of rows, and whichever of them is a copy."""
    (z, y), test = digits
    plain = learned("ridge", (z[:n], y[:n]), weigh=weigh)
    before = right(plain, test)
    head = learned("ridge", (z[:n], y[:n]), (z[copied], y[copied]), weigh=weigh)
    assert right(head, test) > before - 6
    assert relative(head) > 1e-3


def test_forgetting_rows_on_the_way_does_not_fall(digits: tuple[Rows, Rows]) -> None:
    (z, y), test = digits
    rows, labels = torch.cat([z[:600], z[:5]]), torch.cat([y[:600], y[:5]])
    like = learned("random_ridge", (z[:ROWS], y[:ROWS]), width=500)
    head = learned("random_ridge", (rows, labels), width=500, like=like)
    before = right(head, test)
    for end in range(600, 300, -25):  # past 500, where rows are as many as features
        head.forget(rows[end - 25 : end], labels[end - 25 : end])
        now = right(head, test)
        assert now > before - 1
        before = now
    fresh = learned("random_ridge", (torch.cat([z[:300], z[:5]]), torch.cat([y[:300], y[:5]])),
                    width=500, like=like)  # fmt: skip
    fresh(test[0])
    assert head.inner.penalty == pytest.approx(fresh.inner.penalty, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.sampled_from([30, 60, 66, 200]))
def test_statistics_equal_but_for_rounding_choose_the_same(
    digits: tuple[Rows, Rows], seed: int, n: int
) -> None:
    (z, y), test = digits
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    one = learned("ridge", (z[:n], y[:n]))
    other = learned("ridge", *zip(z[order].split(7), y[order].split(7), strict=True))
    for head in (one, other):
        head(test[0])
    assert other.penalty == pytest.approx(one.penalty, rel=1e-9)


def test_a_copy_among_rows_that_fade(digits: tuple[Rows, Rows]) -> None:
    """A half-life of 25 rows is worth about 72 at any time, as many as there are features."""
    (z, y), test = digits
    plain = learned("ridge", (z[:200], y[:200]), half_life=25)
    before = right(plain, test)
    copied = torch.cat([z[:199], z[198:199]]), torch.cat([y[:199], y[198:199]])
    head = learned("ridge", copied, half_life=25)
    assert right(head, test) > before - 2
    assert relative(head) > 1e-2


def test_one_class_that_varies_has_no_error_to_divide_by() -> None:
    gram = torch.eye(3, dtype=torch.float64)
    moments = Moments(gram, gram.new_zeros(3, 1), 0.0, 9.0)
    assert choose_penalty(moments, Eigenbasis(gram, moments.cross)) == float(PENALTIES[-1])


@pytest.mark.parametrize("name", ["ridge", "random_ridge"])
def test_what_0_2_called_gcv_loads_and_merges(
    digits: tuple[Rows, Rows], tmp_path: Path, name: str
) -> None:
    (z, y), test = digits
    options = {"width": 100} if name == "random_ridge" else {}
    head = learned(name, (z, y), **options)
    head.save(tmp_path / "new")
    kept = read_head(tmp_path / "new")
    settings = {**kept.settings, "preset": "exact", "penalty": "gcv"}
    old = {"head": name, "settings": settings, "format": OLDEST}
    write_tensors(tmp_path / "old", "head", kept.state, old)
    loaded = load_head(tmp_path / "old")
    assert loaded.settings == head.settings
    assert loaded.settings["penalty"] == "auto"
    assert torch.equal(loaded(test[0]), head(test[0]))
    assert loaded.merge(head).class_counts.sum() == 2 * len(y)
