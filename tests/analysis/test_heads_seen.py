"""Norms, weight change, angles and interference on cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.analysis import (
    angles_between,
    bias_change,
    class_norms,
    data_angles,
    interference_risk,
    largest_risk,
    norm_change,
    riskiest_pairs,
    weight_change,
)
from lastlayer.errors import ArgumentError, LabelError, ShapeError

SQUARE = np.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [1.0, 1.0]])


def slow_data_angles(z: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Angle by angle, by the tangent instead of the cosine: good near 0 and 180 as well."""
    means = np.full((len(weight), len(weight)), np.nan)
    for c in np.unique(y):
        for i, row in enumerate(weight / np.linalg.norm(weight, axis=1, keepdims=True)):
            unit = z[y == c] / np.linalg.norm(z[y == c], axis=1, keepdims=True)
            half = np.arctan2(
                np.linalg.norm(unit - row, axis=1), np.linalg.norm(unit + row, axis=1)
            )
            means[c, i] = np.degrees(2 * half).mean()
    return means


def test_norms_and_their_change() -> None:
    before, after = SQUARE[:3], np.array([[0.0, 1.0], [3.0, 4.0], [0.0, 0.0]])
    assert class_norms(np.stack([before, after])).tolist() == [[1, 2, 3], [1, 5, 0]]
    assert norm_change(before, after).tolist() == [0, 3, -3]


def test_a_row_that_turns_has_a_change_of_weight_but_none_of_norm() -> None:
    before, after = np.array([[1.0, 0.0], [2.0, 2.0]]), np.array([[0.0, 1.0], [2.0, 2.0]])
    assert norm_change(before, after).tolist() == [0, 0]
    assert weight_change(before, after).tolist() == [[-1, 1], [0, 0]]


def test_a_bias_that_comes_or_goes_has_no_change() -> None:
    inf = np.inf
    change = bias_change(np.array([1.0, -inf, -inf, 2.0]), np.array([0.5, -inf, 3.0, -inf]))
    np.testing.assert_array_equal(change, [-0.5, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("change", [norm_change, bias_change, weight_change])
def test_states_of_different_shape_are_refused(change: object) -> None:
    with pytest.raises(ShapeError, match="rows of all classes"):
        change(np.zeros((2, 3)), np.zeros((4, 3)))  # type: ignore[operator]


def test_angles_between_vectors() -> None:
    expected = [[0, 90, 180, 45], [90, 0, 90, 45], [180, 90, 0, 135], [45, 45, 135, 0]]
    np.testing.assert_allclose(angles_between(SQUARE), expected, atol=1e-5)
    both = angles_between(np.stack([SQUARE, SQUARE[::-1]]))
    np.testing.assert_allclose(both[1], np.array(expected)[::-1, ::-1], atol=1e-5)


def test_a_zero_vector_has_no_angle() -> None:
    angles = angles_between(np.array([[1.0, 0.0], [0.0, 0.0]]))
    np.testing.assert_array_equal(angles, [[0, np.nan], [np.nan, np.nan]])


@given(st.sampled_from([1e-30, 1.0, 1e30]), st.integers(0, 99))
def test_rounding_and_scale_never_leave_the_domain(scale: float, seed: int) -> None:
    row = (scale * np.random.default_rng(seed).normal(size=(1, 7))).astype(np.float32)
    weight = np.concatenate([row, 3 * row, -row])
    np.testing.assert_allclose(angles_between(weight)[0], [0, 0, 180], atol=0.1)
    angles = data_angles(row, np.array([0]), weight)
    np.testing.assert_allclose(angles[0], [0, 0, 180], atol=0.1)


def test_mean_angles_of_data_by_hand() -> None:
    z = np.array([[0.0, 3.0], [5.0, 0.0], [0.0, 0.0], [1.0, 1.0]], dtype=np.float16)
    angles = data_angles(z, np.array([3, 3, 3, 1], dtype=np.uint8), SQUARE)
    # Class 3: one sample at 90 degrees, one at 0, and one without direction that does not count.
    np.testing.assert_allclose(angles[3], [45, 45, 135, 45], atol=1e-3)
    np.testing.assert_allclose(angles[1], [45, 45, 135, 0], atol=0.1)
    assert np.isnan(angles[[0, 2]]).all()


def test_mean_angles_are_the_slow_ones_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, 6, 5)).astype(np.float32)
    z, y = rng.normal(size=(200, 5)).astype(np.float32), rng.integers(0, 5, 200)
    expected = np.stack([slow_data_angles(z, y, rows) for rows in weight])
    for chunk in (2**19, 400, 1):
        monkeypatch.setattr("lastlayer.analysis.vectors._CHUNK", chunk)
        np.testing.assert_allclose(data_angles(z, y, weight), expected, atol=1e-3)


def test_samples_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(3, 4\)"):
        data_angles(np.ones((3, 4)), np.zeros(3, dtype=int), np.ones((2, 5)))
    with pytest.raises(ShapeError, match="one label for each of 3"):
        data_angles(np.ones((3, 5)), np.zeros(2, dtype=int), np.ones((2, 5)))
    with pytest.raises(LabelError, match="from 0 to 1"):
        data_angles(np.ones((3, 5)), np.array([0, 1, 2]), np.ones((2, 5)))
    with pytest.raises(ArgumentError, match="y must hold whole numbers, got float64"):
        data_angles(np.ones((3, 5)), np.zeros(3), np.ones((2, 5)))


def test_interference_risk_by_hand() -> None:
    angles = np.array([[60.0, 90.0, 30.0], [80.0, 40.0, 40.0], [np.nan] * 3])
    risk = interference_risk(angles)
    expected = [[1, 60 / 90, 2], [0.5, 1, 1], [np.nan] * 3]
    np.testing.assert_allclose(risk, expected)
    np.testing.assert_allclose(largest_risk(risk), [2, 1, np.nan])
    assert riskiest_pairs(risk, 3) == [(0, 2, 2.0), (1, 2, 1.0), (0, 1, 60 / 90)]
    assert len(riskiest_pairs(risk, 99)) == 4
    assert riskiest_pairs(risk, 0) == []


def test_an_angle_of_zero() -> None:
    risk = interference_risk(np.array([[0.0, 0.0, 9.0], [0.0, 5.0, 5.0], [1.0, 1.0, 0.0]]))
    np.testing.assert_array_equal(risk, [[1, 1, 0], [np.inf, 1, 1], [0, 0, 1]])
    assert riskiest_pairs(risk, 1) == [(1, 0, np.inf)]


@given(st.integers(0, 99))
def test_risk_is_above_one_exactly_where_a_wrong_vector_is_closer(seed: int) -> None:
    angles = np.random.default_rng(seed).uniform(1, 179, size=(2, 4, 4))
    risk = interference_risk(angles)
    own = np.diagonal(angles, axis1=1, axis2=2)[..., None]
    assert ((risk > 1) == (angles < own)).all()
    assert (np.diagonal(risk, axis1=1, axis2=2) == 1).all()


def test_risks_need_a_square() -> None:
    for function in (interference_risk, largest_risk):
        with pytest.raises(ShapeError, match="square"):
            function(np.ones((2, 3)))


def test_a_row_has_no_angle_with_itself_whatever_rounding_leaves() -> None:
    rows = np.random.default_rng(0).normal(size=(3, 50, 7))
    angles = angles_between(rows)
    assert not angles[..., range(50), range(50)].any()
    assert (angles[:, 0, 1:] > 0).all()


def test_angles_are_between_rows() -> None:
    with pytest.raises(ShapeError, match="weight"):
        angles_between(np.ones(3))
