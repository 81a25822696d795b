from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.analysis import shapley_shares, shapley_values
from lastlayer.errors import DataError, ShapeError


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray:
    """Draw which combinations of repairs help; none never does, all always do."""
    k = draw(st.integers(1, 4))
    flat = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).random((7, 2**k)) < 0.5
    flat[:, 0], flat[:, -1] = False, True
    return flat.reshape(7, *[2] * k)


def by_orders(right: np.ndarray) -> np.ndarray:
    """What each repair adds, on average over all orders in which they are made."""
    k = right.ndim - 1
    values = np.zeros((len(right), k))
    orders = list(permutations(range(k)))
    for order in orders:
        made = [0] * k
        for j in order:
            before = right[:, *made].astype(float)
            made[j] = 1
            values[:, j] += (right[:, *made] - before) / len(orders)
    return values


def test_three_repairs_by_hand() -> None:
    right = np.zeros((3, 2, 2, 2), dtype=bool)
    right[0, 1, :, :] = True  # the first alone
    right[1, 1, 1, 1] = True  # only all three together
    right[2, 1, 1, :] = right[2, 1, :, 1] = True  # the first with any other
    values = shapley_values(right)
    np.testing.assert_allclose(values, [[1, 0, 0], [1 / 3] * 3, [2 / 3, 1 / 6, 1 / 6]])
    np.testing.assert_allclose(shapley_shares(right), [2 / 3, 1 / 6, 1 / 6])


def test_a_repair_that_harms_counts_below_nothing() -> None:
    right = np.array([[[False, False], [True, True]], [[False, False], [False, True]]])[None]
    # The second repair alone is enough, unless the first is made without the third.
    np.testing.assert_allclose(shapley_values(right), [[-1 / 6, 5 / 6, 1 / 3]])


@given(tables())
def test_values_are_what_repairs_add_over_all_orders(right: np.ndarray) -> None:
    np.testing.assert_allclose(shapley_values(right), by_orders(right), atol=1e-12)


@given(tables())
def test_efficiency(right: np.ndarray) -> None:
    np.testing.assert_allclose(shapley_values(right).sum(1), 1)
    np.testing.assert_allclose(shapley_shares(right).sum(), 1)


@given(tables(), st.randoms(use_true_random=False))
def test_symmetry(right: np.ndarray, random: object) -> None:
    axes = list(range(right.ndim - 1))
    random.shuffle(axes)  # type: ignore[attr-defined]
    renamed = right.transpose(0, *[1 + axis for axis in axes])
    np.testing.assert_allclose(shapley_values(renamed), shapley_values(right)[:, axes], atol=1e-12)


@given(tables(), st.data())
def test_a_dummy_gets_nothing(right: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, right.ndim - 1))
    with_dummy = np.stack([right, right], axis=1 + axis)
    values = shapley_values(with_dummy)
    np.testing.assert_allclose(values[:, axis], 0, atol=1e-12)
    np.testing.assert_allclose(np.delete(values, axis, 1), shapley_values(right), atol=1e-12)


def test_nothing_lost_has_no_shares() -> None:
    assert np.isnan(shapley_shares(np.zeros((0, 2, 2, 2), dtype=bool))).tolist() == [True] * 3


def test_bad_tables_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(4, 2, 3\)"):
        shapley_values(np.zeros((4, 2, 3), dtype=bool))
    for table in (np.zeros((1, 2, 2), dtype=bool), np.ones((1, 2, 2), dtype=bool)):
        with pytest.raises(DataError, match="wrong without any repair"):
            shapley_values(table)
