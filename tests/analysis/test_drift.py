"""Projection drift: worked by hand, and what does not change it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.analysis import projection_drift
from lastlayer.errors import ShapeError


def test_by_hand() -> None:
    z = np.array(
        [
            [[9.0, 9.0], [3.0, 4.0], [0.0, 5.0]],  # before class 1 came
            [[1.0, 0.0], [3.0, 4.0], [0.0, 5.0]],
            [[1.0, 1.0], [6.0, 8.0], [5.0, 0.0]],
        ]
    )
    y, learned = np.array([0, 1, 1]), np.array([0, 1])
    weight = np.zeros((3, 2, 2))
    weight[0, 0], weight[1, 1] = [2.0, 0.0], [0.0, 7.0]
    drift = projection_drift(weight, z, y, learned)
    assert np.isnan([values[0, 1] for values in drift]).all()  # class 1 was not there
    assert [values[1, 1] for values in drift] == [0, 0, 0]
    # Class 1: norms 5, 5 become 10, 5; angles 0 and 90; along (0, 1): 8 − 4 and 0 − 5, of 5.
    assert drift.norm[2, 1] == pytest.approx(0.5)
    assert drift.angle[2, 1] == pytest.approx(45)
    assert drift.along[2, 1] == pytest.approx(-0.5 / 5)
    # Class 0: norm √162 becomes 1, then √2; 45 degrees, then 0; along (1, 0) 9 becomes 1.
    np.testing.assert_allclose(drift.norm[:, 0], [0, 162**-0.5 - 1, (2 / 162) ** 0.5 - 1])
    np.testing.assert_allclose(drift.angle[:, 0], [0, 45, 0], atol=1e-6)
    np.testing.assert_allclose(drift.along[:, 0], [0, -8 / 162**0.5, -8 / 162**0.5])


def test_what_cannot_be_said_is_nan() -> None:
    z = np.array([[[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
    y, weight = np.array([0, 0]), np.zeros((2, 3, 2))
    drift = projection_drift(weight, z, y, np.array([0, 0, -1]))
    assert drift.angle[:, 0].tolist() == [0, 0]  # the sample that was zero is left out
    assert drift.norm[1, 0] == 1
    assert np.isnan(drift.along).all()  # output vectors are zero
    for values in drift:
        assert np.isnan(values[:, 1:]).all()  # no samples, and never came


@given(st.integers(0, 2**32 - 1))
def test_scale_does_not_count_and_a_turn_of_everything_keeps_the_angle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, weight = rng.normal(size=(3, 12, 4)), rng.normal(size=(3, 2, 4))
    y, learned = np.arange(12) % 2, np.array([0, 1])
    drift = projection_drift(weight, z, y, learned)
    for one, other in zip(drift, projection_drift(5 * weight, 7 * z, y, learned), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    for one, other in zip(
        drift, projection_drift(weight @ turn, z @ turn, y, learned), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)
    still = projection_drift(weight, z[[0, 0, 0]], y, np.zeros(2, dtype=int))
    assert not np.any(still)


def test_bad_input_is_named() -> None:
    with pytest.raises(ShapeError, match=r"z \(T, n, h\)"):
        projection_drift(np.ones((2, 1, 3)), np.ones((4, 3)), np.zeros(4, int), np.zeros(1, int))


def test_a_class_that_never_came_does_not_end_the_others() -> None:
    z = np.array([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 4.0]]])
    weight = np.ones((2, 2, 2))
    drift = projection_drift(weight, z, np.array([0, 1]), np.array([-1, 0]))
    assert np.isnan(drift.norm[:, 0]).all()
    assert drift.norm[1, 1] == pytest.approx(1.0)
