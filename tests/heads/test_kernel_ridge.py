"""Kernel ridge regression against scikit-learn, plain leave-one-out, and a refit after changes."""

import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.kernel_ridge import KernelRidge
from streams import blobs
from torch import Tensor

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.errors import DataError, OptionError
from lastlayer.heads import KernelRidgeHead, load_head
from lastlayer.heads.neighbours import kernel_factor
from lastlayer.heads.neighbours.kernel_ridge import (
    PENALTIES,
    choose_kernel,
    different_rows,
    errors_without,
)

FIXED = {"bandwidth": 2.0, "penalty": 0.05}


def rows(n: int, seed: int = 0, n_classes: int = 3) -> tuple[Tensor, Tensor]:
    """Give classes that overlap."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % n_classes
    z = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return z + torch.eye(4, dtype=torch.float64)[y], y


def learned(z: Tensor, y: Tensor, **options: object) -> KernelRidgeHead:
    head = KernelRidgeHead(in_features=z.shape[1], n_classes=3, **options)  # type: ignore[arg-type]
    head.observe(z, y)
    return head


def test_it_is_scikit_learns_kernel_ridge_with_the_best_intercept() -> None:
    (z, y), (queries, _) = rows(80), rows(30, seed=1)
    head = learned(z, y, **FIXED)
    logits = head(queries)
    peer = KernelRidge(alpha=0.05, kernel="rbf", gamma=1 / (2 * 2.0**2))
    peer.fit(z.numpy(), np.eye(3)[y] - head.bias.numpy())
    np.testing.assert_allclose(logits, peer.predict(queries.numpy()) + head.bias.numpy(), rtol=1e-9)
    # No other intercept leaves a smaller sum: its derivative, the sum of the weights, is 0.
    np.testing.assert_allclose(peer.dual_coef_.sum(axis=0), 0, atol=1e-9)


def test_novelty_is_the_variance_of_a_gaussian_process_with_an_unknown_level() -> None:
    (z, y), (queries, _) = rows(60), rows(20, seed=1)
    queries = torch.cat([queries, queries[:2] + 100])
    known = ConstantKernel(1e6, "fixed") + RBF(2.0, "fixed")
    peer = GaussianProcessRegressor(known, alpha=0.05, optimizer=None).fit(z.numpy(), y.numpy())
    _, deviation = peer.predict(queries.numpy(), return_std=True)
    novelty = learned(z, y, **FIXED).novelty(queries)
    np.testing.assert_allclose(novelty, deviation**2, rtol=1e-5)
    assert (novelty[-2:] > 1).all()


def test_errors_left_out_are_those_of_leaving_out() -> None:
    """Each different row is left out in turn, with all that are like it, whatever their labels."""
    z, y = rows(24)
    z[5], z[6], z[20], y[20] = z[2], z[2], z[9], (y[9] + 1) % 3
    targets, penalties = np.eye(3)[y], (0.01, 0.3)
    expected = []
    for penalty in penalties:
        error = 0.0
        for one in z.unique(dim=0):
            held = (z == one).all(dim=1)
            head = learned(z[~held], y[~held], bandwidth=1.5, penalty=penalty)
            error += float(np.square(targets[held] - head(one[None]).numpy()).sum())
        expected.append(error)
    found = different_rows(z, y, 3)
    mixed = (found.targets * (1 - found.targets)).sum(dim=1) @ found.times
    np.testing.assert_allclose(
        np.array(errors_without(found, 1.5, penalties)) + float(mixed), expected, rtol=1e-9
    )


def test_bandwidth_and_penalty_are_the_best_of_the_grid_and_the_same_in_any_order() -> None:
    z, y = rows(90)
    found = different_rows(z, y, 3)
    bandwidth, penalty = choose_kernel(found)
    errors = {
        (k, p): error
        for k in range(-4, 9)
        for p, error in zip(PENALTIES, errors_without(found, 2 ** (k / 2), PENALTIES), strict=True)
    }
    best = min(errors, key=lambda key: errors[key])
    assert (bandwidth, penalty) == (pytest.approx(2 ** (best[0] / 2)), best[1])
    for again in (torch.arange(89, -1, -1), torch.randperm(90)):
        assert choose_kernel(different_rows(z[again], y[again], 3)) == (bandwidth, penalty)
    # One of the two may be given, and stays.
    assert choose_kernel(found, penalty=0.5)[1] == 0.5
    assert choose_kernel(found, bandwidth=0.7)[0] == 0.7


def test_of_many_rows_those_with_the_smallest_hashes_are_looked_at() -> None:
    z, y = rows(300)
    one = different_rows(z, y, 3, most=50)
    order = torch.randperm(300)
    other = different_rows(
        torch.cat([z, z[:40]])[order.repeat(2)[:300]].float().double(), y[order], 3
    )
    assert one.z.shape == (50, 4)
    assert len(other.z) == 300
    whole = different_rows(z[order], y[order], 3, most=50)
    assert torch.equal(whole.z, one.z)
    assert torch.equal(whole.targets, one.targets)
    # A new row changes the sample only where its hash is among the smallest.
    more = different_rows(torch.cat([z, z[:1] + 1]), torch.cat([y, y[:1]]), 3, most=50)
    assert torch.isin(more.z, one.z).all(dim=1).sum() >= 49


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**20), batch=st.integers(3, 20), gone=st.floats(0, 0.6))
def test_a_factor_that_grew_and_shrank_equals_a_refit(seed: int, batch: int, gone: float) -> None:
    z, y = rows(40, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_factor, "BLOCK", 8)
        head = KernelRidgeHead(4, 3, **FIXED)  # type: ignore[arg-type]
        for part in range(0, 40, batch):
            head.observe(z[part : part + batch], y[part : part + batch])
            head(z[:1])
        away = torch.rand(40, generator=torch.Generator().manual_seed(seed)) < gone
        away[seed % 40] = False
        head.forget(z[away], y[away])
        answers = head(z), head.novelty(z)
        head.observe(z[away], y[away])
        both = torch.cat([z[~away], z[away]]), torch.cat([y[~away], y[away]])
        for found, (own, labels) in ((answers, (z[~away], y[~away])), ((head(z), None), both)):
            refit = learned(own, labels, **FIXED)
            torch.testing.assert_close(found[0], refit(z), rtol=0, atol=1e-9)
            if found[1] is not None:
                torch.testing.assert_close(found[1], refit.novelty(z), rtol=0, atol=1e-9)


def test_new_rows_extend_the_factor_and_leave_what_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_factor, "BLOCK", 16)
    z, y = rows(80)
    head = learned(z[:64], y[:64], **FIXED)
    head(z)
    before = head._factor
    head.observe(z[64:], y[64:])
    head(z)
    assert before is not None
    assert head._factor is not None
    assert all(a is b for a, b in zip(before.blocks, head._factor.blocks, strict=False))


def test_unit_rows_have_no_length() -> None:
    (z, y), (queries, _) = rows(50), rows(20, seed=1)
    scale = torch.linspace(0.1, 9, 50)[:, None]
    plain = learned(z / z.norm(dim=1, keepdim=True), y)
    unit = learned(z * scale, y, rows="unit")
    unit_queries = queries / queries.norm(dim=1, keepdim=True)
    torch.testing.assert_close(unit(7 * queries), plain(unit_queries), rtol=0, atol=1e-9)
    zeros = torch.zeros(1, 4, dtype=torch.float64)
    assert unit(zeros).isfinite().all()
    label, shares, _ = unit.as_module(dtype=torch.float64)(torch.cat([queries, zeros]))
    assert torch.equal(label, unit.predict(torch.cat([queries, zeros])))
    assert shares.isfinite().all()


@pytest.mark.parametrize("far", [0.0, 1e6])
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e30])
def test_features_of_any_size_and_place(size: float, far: float) -> None:
    z, y = blobs()
    z = size * (z.double() + far)
    assert (learned(z, y).predict(z) == y).double().mean() > 0.9


def test_few_rows_and_rows_that_are_all_alike() -> None:
    for z, y in (
        (torch.zeros(1, 2), torch.tensor([0])),
        (torch.zeros(3, 2), torch.tensor([0, 0, 1])),
        (torch.tensor([[0.0, 1.0], [5.0, 1.0]]), torch.tensor([0, 1])),
        (torch.eye(4)[:, :2], torch.tensor([1, 1, 1, 1])),
    ):
        head = KernelRidgeHead(2)
        head.observe(z, y)
        assert head(z).isfinite().any(dim=1).all()
        assert head.novelty(z).isfinite().all()
        assert int(head.predict(z)[0]) == int(y[0])
    apart = torch.eye(30)
    head = KernelRidgeHead(30)
    head.observe(apart, torch.arange(30))  # one row a class
    assert torch.equal(head.predict(apart), torch.arange(30))


def test_a_penalty_too_small_for_copies_is_told_of_and_nothing_is_lost() -> None:
    z, y = rows(40)
    head = learned(z, y, bandwidth=100.0, penalty=1e-9)
    answers = head(z)
    for penalty in (1e-300, 1e-18):
        copies = learned(z, y, bandwidth=100.0, penalty=penalty)
        copies.observe(z, y)
        with pytest.raises(DataError, match=r"singular one of 80 rows .* larger penalty than 1e-"):
            copies.predict(z)
        assert int(copies.class_counts.sum()) == 80
    assert torch.equal(head(z), answers)


def test_more_rows_than_the_budget_are_refused_and_nothing_is_lost() -> None:
    z, y = rows(40)
    head = learned(z[:30], y[:30], budget=4 * 35 * (35 + kernel_factor.BLOCK))
    with pytest.raises(OptionError, match=r"enough for 35 rows, but 40 rows need .*random_ridge"):
        head.observe(z[30:], y[30:])
    assert int(head.class_counts.sum()) == 30
    head.observe(z[30:35], y[30:35])


def test_the_card_says_how_many_rows_it_takes_by_default() -> None:
    most = HEADS["kernel_ridge"].most_rows
    assert most is not None
    head = KernelRidgeHead(in_features=1)
    budget = head.options["budget"]
    assert 4 * most * (most + kernel_factor.BLOCK) <= budget
    assert 4 * (most + 1) * (most + 1 + kernel_factor.BLOCK) > budget
    with pytest.raises(OptionError, match=f"enough for {most} rows"):
        head.observe(torch.zeros(most + 1, 1), torch.zeros(most + 1, dtype=torch.int64))


def test_its_factor_is_in_no_file_and_no_pickle(tmp_path: Path) -> None:
    z, y = rows(600)
    head = learned(z, y, **FIXED)
    answers = head(z[:9])
    head.save(tmp_path / "head")
    limit = 2 * (z.numel() + len(y)) * 8 + 10_000
    assert (tmp_path / "head").stat().st_size < limit
    pickled = pickle.dumps(head)
    for other in (load_head(tmp_path / "head"), pickle.loads(pickled)):
        torch.testing.assert_close(other(z[:9]), answers, rtol=0, atol=1e-9)


@pytest.mark.parametrize("option", ["bandwidth", "penalty"])
@pytest.mark.parametrize("value", [0, -1.0, math.inf, "wide"])
def test_settings_are_auto_or_above_zero(option: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"{option} must be"):
        KernelRidgeHead(2, **{option: value})  # type: ignore[arg-type]
