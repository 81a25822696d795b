"""Loss divided among weights, interference and drift: worked by hand, and the laws it keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.analysis import LOSS_PARTS, loss_parts, trace_losses
from lastlayer.errors import DataError, LabelError, ShapeError


def parts_of(
    then: list[float], now: list[float], z: list[float], later: bool = True
) -> list[float] | None:
    """Divide the loss of one sample of class 0 with one feature, 1 or another; class 1 is later."""
    weight = np.array([then, now])[..., None]
    states = np.array(z).reshape(2, 1, 1)
    learned = np.array([0, 1 if later else 0])
    (lost,) = loss_parts(weight, np.array([[0, -9], [0, 0]]), states, np.array([0]), learned)[1:, 0]
    return lost.tolist() if lost.any() else None


def test_by_hand() -> None:
    # Class 0 has logit 2 then. It is right, and stays so while class 1 is below.
    assert parts_of([2, 0], [2, 1], [1, 1]) is None
    # Class 1 came and wins with 3 over 2, whatever is done to row or features: interference.
    assert parts_of([2, 0], [2, 3], [1, 1]) == [0, 1, 0]
    # The feature turned to −1: class 0 gets −2, class 1 gets −1. Either Z or L will do.
    assert parts_of([2, 0], [2, 1], [1, -1]) == [0, 0.5, 0.5]
    # The row sank to 1, class 1 stands at 1.5. Either R or L will do.
    assert parts_of([2, 0], [1, 1.5], [1, 1]) == [0.5, 0.5, 0]
    # Both classes came at once, so L does nothing: only the rows have changed.
    assert parts_of([2, 0], [1, 3], [1, 1], later=False) == [1, 0, 0]


def test_three_in_turn_by_hand() -> None:
    """Right with L, or with R and Z: by the six orders L is decisive in 4, R and Z in 1 each."""
    # Class 0: row 2 and feature 2 then, 1 and 1 now. Class 1 has 2.5, its bias, whatever they are:
    # it wins over 1·1, 2·1 and 1·2, not over 2·2.
    weight = np.array([[[2.0], [0.0]], [[1.0], [0.0]]])
    bias = np.array([[0.0, -9.0], [0.0, 2.5]])
    z = np.array([[[2.0]], [[1.0]]])
    parts = loss_parts(weight, bias, z, np.array([0]), np.array([0, 1]))
    np.testing.assert_allclose(parts[1, 0], [1 / 6, 4 / 6, 1 / 6])


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """Draw small whole numbers, so that ties are frequent and sums exact."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_tasks, n_classes = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    weight = rng.integers(-3, 4, (n_tasks, n_classes, 2)).astype(np.float32)
    bias = rng.integers(-2, 3, (n_tasks, n_classes)).astype(np.float32)
    z = rng.integers(-2, 3, (n_tasks, 40, 2)).astype(np.float32)
    return weight, bias, z, rng.integers(0, n_classes, 40), rng.integers(-1, n_tasks, n_classes)


def lost_of(weight, bias, z, y, learned) -> np.ndarray:
    """Count what was right when its class came and is wrong now: (T, C)."""
    right = (np.einsum("tch,tnh->tnc", weight, z) + bias[:, None]).argmax(-1) == y
    since = learned[y]
    was = right[since, np.arange(len(y))] & (since >= 0)
    gone = was & ~right & (np.arange(len(bias))[:, None] > since)
    return np.stack([gone[:, y == c].sum(1) for c in range(bias.shape[1])], axis=1)


@given(streams())
def test_the_parts_sum_to_what_was_lost(stream: tuple[np.ndarray, ...]) -> None:
    np.testing.assert_allclose(loss_parts(*stream).sum(-1), lost_of(*stream), atol=1e-9)


@given(streams())
def test_where_features_never_change_it_is_the_analysis_of_two_repairs(
    stream: tuple[np.ndarray, ...],
) -> None:
    weight, bias, z, y, learned = stream
    z[:] = z[0]
    parts = loss_parts(weight, bias, z, y, learned)
    weights, interference, either, together = np.moveaxis(
        trace_losses(weight, bias, z[0], y, learned).repairs, -1, 0
    )
    shared = (either + together) / 2
    expected = np.stack([weights + shared, interference + shared, 0 * shared], axis=-1)
    np.testing.assert_allclose(parts, expected, atol=1e-9)


@given(streams())
def test_where_learned_rows_never_change_no_part_is_of_weights(
    stream: tuple[np.ndarray, ...],
) -> None:
    weight, bias, z, y, learned = stream
    for c, task in enumerate(learned):
        weight[max(task, 0) :, c], bias[max(task, 0) :, c] = weight[task, c], bias[task, c]
    assert not loss_parts(weight, bias, z, y, learned)[..., LOSS_PARTS.index("weights")].any()


@given(streams())
def test_where_all_classes_come_first_no_part_is_of_interference(
    stream: tuple[np.ndarray, ...],
) -> None:
    *states, learned = stream
    parts = loss_parts(*states, np.zeros_like(learned))
    assert not parts[..., LOSS_PARTS.index("interference")].any()


def test_laws_are_not_kept_by_emptiness() -> None:
    rng = np.random.default_rng(0)
    weight, z = rng.normal(size=(4, 6, 5)), rng.normal(size=(4, 500, 5))
    y, learned = rng.integers(0, 6, 500), np.array([0, 0, 1, 1, 2, 3])
    parts = loss_parts(weight, np.zeros((4, 6)), z, y, learned)
    assert (parts.sum((0, 1)) > 1).all()


def test_bad_input_is_named() -> None:
    weight, bias, z = np.ones((2, 3, 1)), np.zeros((2, 3)), np.ones((2, 4, 1))
    y, learned = np.zeros(4, dtype=int), np.zeros(3, dtype=int)
    with pytest.raises(ShapeError, match=r"z \(T, n, h\)"):
        loss_parts(weight, bias, z[:1], y, learned)
    with pytest.raises(ShapeError, match="bias must have the shape"):
        loss_parts(weight, bias[0], z, y, learned)
    with pytest.raises(LabelError, match="from 0 to 1, or −1"):
        loss_parts(weight, bias, z, y, learned + 2)
    with pytest.raises(DataError, match="diverged"):
        loss_parts(weight, bias, z * np.nan, y, learned)
