"""Continual measures and the timeline, by hand; tests_images compares them with Continuum."""

import numpy as np
import pytest

from lastlayer.analysis import (
    accuracy_since_learned,
    after_each_task,
    average_accuracy,
    average_forgetting,
    average_incremental_accuracy,
    backward_transfer,
    before_training,
    final_accuracy,
    forgotten,
    forward_transfer,
)
from lastlayer.analysis.inputs import whole_numbers
from lastlayer.analysis.timeline import share_of_all
from lastlayer.errors import OptionError, ShapeError

R = np.array([[0.9, 0.2, 0.1], [0.6, 0.8, 0.3], [0.7, 0.4, 1.0]])
MEASURES = (
    final_accuracy,
    average_accuracy,
    average_incremental_accuracy,
    average_forgetting,
    backward_transfer,
    forward_transfer,
)


def test_measures_by_hand() -> None:
    assert final_accuracy(R) == pytest.approx((0.7 + 0.4 + 1.0) / 3)
    assert average_accuracy(R) == pytest.approx((0.9 + 0.6 + 0.8 + 0.7 + 0.4 + 1.0) / 6)
    assert average_incremental_accuracy(R) == pytest.approx((0.9 + 0.7 + 0.7) / 3)
    assert average_forgetting(R) == pytest.approx(((0.9 - 0.7) + (0.8 - 0.4)) / 2)
    assert backward_transfer(R) == pytest.approx(((0.6 - 0.9) + (0.7 - 0.9) + (0.4 - 0.8)) / 3)
    assert forward_transfer(R) == pytest.approx((0.2 + 0.3) / 2)
    assert forward_transfer(R, np.array([0.5, 0.1, 0.2])) == pytest.approx((0.1 + 0.1) / 2)


def test_sizes_weigh_tasks() -> None:
    sizes = np.array([1, 2, 7])
    assert final_accuracy(R, sizes) == pytest.approx((0.7 + 2 * 0.4 + 7 * 1.0) / 10)
    expected = (0.9 + (0.6 + 2 * 0.8) / 3 + (0.7 + 2 * 0.4 + 7 * 1.0) / 10) / 3
    assert average_incremental_accuracy(R, sizes) == pytest.approx(expected)
    with pytest.raises(ShapeError, match=r"sizes must have the shape \(3,\)"):
        final_accuracy(R, sizes[:2])


def test_the_best_of_a_task_is_that_since_it_came_and_before_the_end() -> None:
    better_before = np.array([[0.5, 0.9, 0.0], [0.6, 0.7, 0.0], [0.8, 0.7, 0.5]])
    assert average_forgetting(better_before) == pytest.approx(((0.6 - 0.8) + (0.7 - 0.7)) / 2)


@pytest.mark.parametrize("measure", MEASURES)
def test_many_runs_at_once_and_one_without_numbers(measure: object) -> None:
    runs = np.stack([R, R.T, np.full_like(R, np.nan)])
    values = measure(runs)  # type: ignore[operator]
    expected = [measure(R), measure(R.T), np.nan]  # type: ignore[operator]
    np.testing.assert_allclose(values, expected)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_single_task(measure: object) -> None:
    expected = 0.75 if "accuracy" in measure.__name__ else 0  # type: ignore[attr-defined]
    assert measure(np.array([[0.75]])) == expected  # type: ignore[operator]


@pytest.mark.parametrize("measure", MEASURES)
def test_what_is_no_matrix_of_tasks_is_refused(measure: object) -> None:
    for shape in ((3,), (3, 2), (0, 0)):
        with pytest.raises(ShapeError):
            measure(np.zeros(shape))  # type: ignore[operator]


def test_from_epochs_to_tasks() -> None:
    # Row r, column j: 10·r + j, three tasks of two epochs.
    by_task = 10.0 * np.arange(7)[:, None] + np.arange(3)
    order = (2, 0, 1)
    assert after_each_task(by_task, order).tolist() == [[22, 20, 21], [42, 40, 41], [62, 60, 61]]
    assert before_training(by_task, order).tolist() == [2, 0, 1]
    assert accuracy_since_learned(by_task, order).tolist() == [22, 32, 42, 52, 62]
    assert accuracy_since_learned(by_task, order, nth=1).tolist() == [40, 50, 60]
    assert accuracy_since_learned(by_task, order, nth=2).tolist() == [61]
    assert forgotten(by_task, order, nth=1).tolist() == [0, -10, -20]
    assert accuracy_since_learned(np.stack([by_task] * 2), order).shape == (2, 5)


def test_bad_timelines_are_named() -> None:
    with pytest.raises(ShapeError, match="belong to no task"):
        after_each_task(np.zeros((7, 0)), (0, 1, 2))
    with pytest.raises(ShapeError, match="got 8 rows"):
        after_each_task(np.zeros((8, 3)), (0, 1, 2))
    with pytest.raises(ShapeError, match="each task once"):
        before_training(np.zeros((7, 3)), (0, 1, 1))
    with pytest.raises(OptionError, match="from 0 to 2, got 3"):
        forgotten(np.zeros((7, 3)), (0, 1, 2), nth=3)


@pytest.mark.parametrize("measure", MEASURES)
def test_any_number_of_axes_may_lead(measure: object) -> None:
    runs = np.stack([R, R.T, R**2, R.T**2, R / 2, R / 3, R / 4, R / 5]).reshape(4, 2, 3, 3)
    values = measure(runs)  # type: ignore[operator]
    assert values.shape == (4, 2)
    expected = [[measure(one) for one in row] for row in runs]  # type: ignore[operator]
    np.testing.assert_allclose(values, expected)
    assert measure(runs[0, :, :1, :1]).shape == (2,)  # type: ignore[operator]


def test_shares_of_one_row_of_counts() -> None:
    assert share_of_all(np.array([3, 0]), np.array([4, 4])).tolist() == 0.375


def test_no_counts_at_all_are_counts() -> None:
    assert whole_numbers([], "counts").dtype == np.int64
