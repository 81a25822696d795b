"""What would repair a lost sample: each of the four by hand, and the laws that they obey."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.analysis import REPAIRS, first_seen, trace_losses
from lastlayer.errors import DataError, LabelError, ShapeError

Z = np.array([[1.0]])  # one feature of 1: the logits are the rows themselves
INF = np.inf


def repair(then: list[float], now: list[float], learned: list[int]) -> str | None:
    """Name what would repair a sample of class 0 between two tasks, from its logits."""
    weight = np.array([then, now])[..., None]
    absent = np.isneginf(weight[..., 0])
    bias = np.where(absent, -INF, 0)
    counts = trace_losses(
        np.where(absent[..., None], 0, weight), bias, Z, np.array([0]), np.array(learned)
    ).repairs
    assert not counts[0].any()
    assert not counts[:, 1:].any()
    assert counts.sum() <= 1
    return REPAIRS[int(counts[1, 0].argmax())] if counts.any() else None


def test_each_repair_by_hand() -> None:
    # Classes 0 and 1 come first, class 2 later. Then class 0 has logit 3 and wins over class 1.
    seen = [0, 0, 1]
    assert repair([3, 2, 0], [3, 2, 1], seen) is None
    # Class 1 now wins. Its row of then, or that of class 0, helps; without class 2 it still wins.
    assert repair([3, 2, 0], [3, 5, 1], seen) == "old_vectors"
    assert repair([3, 2, 0], [1, 2, 0], seen) == "old_vectors"
    # Class 2 now wins, also over class 0 as it was; without class 2 class 0 wins.
    assert repair([3, 2, 0], [3, 2, 9], seen) == "no_later_classes"
    assert repair([3, 2, 0], [3.5, 2, 9], seen) == "no_later_classes"
    # Class 2 now wins over class 0 as it is, not as it was; without class 2 class 0 wins.
    assert repair([3, 2, 0], [2.5, 2, 2.75], seen) == "either"
    # Class 2 beats class 0 as it was, class 1 beats class 0 as it is.
    assert repair([3, 2, 0], [1, 2, 4], seen) == "both"


def test_a_class_that_came_later_and_could_not_be_predicted_then() -> None:
    assert repair([3, 2, -INF], [3, 2, 4], [0, 0, 1]) == "no_later_classes"
    assert repair([3, 2, -INF], [1, 2, 4], [0, 0, 1]) == "both"
    assert repair([3, 2, -INF], [1, 2, -INF], [0, 0, -1]) == "old_vectors"


def test_a_class_never_seen_is_later_than_all() -> None:
    assert repair([3, 2, 0], [3, 2, 4], [0, 0, -1]) == "no_later_classes"


def test_what_was_never_right_is_not_lost() -> None:
    assert repair([3, 2, 5], [1, 2, 0], [0, 0, 1]) is None  # all rows compete, then as well
    assert repair([3, 2, 0], [1, 2, 4], [-1, 0, 1]) is None
    assert repair([3, 2, 0], [1, 2, 4], [1, 0, 1]) is None


def test_of_equals_the_first_wins() -> None:
    assert repair([2, 2, 2], [2, 2, 2], [0, 0, 1]) is None
    weight = np.full((2, 2, 1), 2.0)
    counts = trace_losses(weight, np.zeros((2, 2)), Z, np.array([1]), np.array([1, 0])).repairs
    assert not counts.any()  # class 1 was not right


def test_what_is_lost_may_come_back() -> None:
    weight = np.array([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0]])[..., None]
    counts = trace_losses(weight, np.zeros((3, 2)), Z, np.array([0]), np.array([0, 0])).repairs
    assert counts.sum(-1).tolist() == [[0, 0], [1, 0], [0, 0]]


def slow_repairs(
    weight: np.ndarray, bias: np.ndarray, z: np.ndarray, y: np.ndarray, learned: np.ndarray
) -> np.ndarray:
    """The definition, a sample at a time."""
    counts = np.zeros((*bias.shape, 4), dtype=int)
    for x, c in zip(z, y, strict=True):
        s = learned[c]
        if s < 0 or (weight[s] @ x + bias[s]).argmax() != c:
            continue
        seen = (learned >= 0) & (learned <= s)
        for t in range(s, len(bias)):
            now, then = weight[t] @ x + bias[t], weight[s] @ x + bias[s]
            if now.argmax() != c:
                by_rows = np.where(seen, then, now).argmax() == c
                by_absence = np.where(seen, now, -INF).argmax() == c
                name = {
                    (True, False): "old_vectors",
                    (False, True): "no_later_classes",
                    (True, True): "either",
                    (False, False): "both",
                }[bool(by_rows), bool(by_absence)]
                counts[t, c, REPAIRS.index(name)] += 1
    return counts


@st.composite
def streams(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """Draw small whole numbers, so that ties are frequent and sums exact."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_tasks, n_classes = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    weight = rng.integers(-3, 4, (n_tasks, n_classes, 2)).astype(np.float32)
    bias = rng.integers(-2, 3, (n_tasks, n_classes)).astype(np.float32)
    learned = rng.integers(-1, n_tasks, n_classes)
    if draw(st.booleans()):
        bias[np.arange(n_tasks)[:, None] < learned] = -INF
    z, y = rng.integers(-2, 3, (40, 2)).astype(np.float16), rng.integers(0, n_classes, 40)
    return weight, bias, z, y, learned


def lost(weight: np.ndarray, bias: np.ndarray, z: np.ndarray, y: np.ndarray, learned: np.ndarray):
    """Count what was right when its class came and is wrong now: (T, C)."""
    logits = np.einsum("tch,nh->tnc", weight, z) + bias[:, None]
    right = logits.argmax(-1) == y
    since = learned[y]
    was = right[since, np.arange(len(y))] & (since >= 0)
    gone = was & ~right & (np.arange(len(bias))[:, None] >= since)
    return np.stack([gone[:, y == c].sum(1) for c in range(bias.shape[1])], axis=1)


@given(streams())
def test_the_four_counts_sum_to_what_was_lost(stream: tuple[np.ndarray, ...]) -> None:
    counts = trace_losses(*stream).repairs
    np.testing.assert_array_equal(counts.sum(-1), lost(*stream))
    np.testing.assert_array_equal(counts, slow_repairs(*stream))


@given(streams())
def test_where_learned_rows_never_change_all_is_no_later_classes(
    stream: tuple[np.ndarray, ...],
) -> None:
    weight, bias, z, y, learned = stream
    for c, task in enumerate(learned):
        weight[max(task, 0) :, c], bias[max(task, 0) :, c] = weight[task, c], bias[task, c]
    counts = trace_losses(weight, bias, z, y, learned).repairs
    assert not np.delete(counts, REPAIRS.index("no_later_classes"), axis=-1).any()


@given(streams())
def test_where_all_classes_come_first_all_is_old_vectors(stream: tuple[np.ndarray, ...]) -> None:
    weight, bias, z, y, learned = stream
    counts = trace_losses(
        weight, np.nan_to_num(bias, neginf=0), z, y, np.zeros_like(learned)
    ).repairs
    assert not np.delete(counts, REPAIRS.index("old_vectors"), axis=-1).any()


def test_laws_are_not_kept_by_emptiness() -> None:
    rng = np.random.default_rng(0)
    weight, z, y = rng.normal(size=(4, 6, 5)), rng.normal(size=(500, 5)), rng.integers(0, 6, 500)
    counts = trace_losses(weight, np.zeros((4, 6)), z, y, np.array([0, 0, 1, 1, 2, 3])).repairs
    assert (counts.sum((0, 1)) > 0).all()


def test_labels_may_be_of_a_small_type() -> None:
    rng = np.random.default_rng(0)
    weight, z, y = rng.normal(size=(2, 90, 5)), rng.normal(size=(500, 5)), rng.integers(0, 90, 500)
    learned = np.repeat([0, 1], 45)
    counts = trace_losses(weight, np.zeros((2, 90)), z, y, learned).repairs
    small = trace_losses(weight, np.zeros((2, 90)), z, y.astype(np.int8), learned).repairs
    np.testing.assert_array_equal(small, counts)


def test_bad_input_is_named() -> None:
    weight, bias, y = np.ones((2, 3, 1)), np.zeros((2, 3)), np.array([0])
    with pytest.raises(ShapeError, match=r"bias \(T, C\)"):
        trace_losses(weight, bias[0], Z, y, np.zeros(3, dtype=int))
    with pytest.raises(LabelError, match="from 0 to 1, or −1"):
        trace_losses(weight, bias, Z, y, np.array([0, 1, 2]))
    for broken in (np.nan, INF):
        with pytest.raises(DataError, match="diverged"):
            trace_losses(weight, bias + broken, Z, y, np.zeros(3, dtype=int))


def test_first_seen_is_the_first_of_several() -> None:
    tasks = [np.array([1, 1]), np.array([0, 1]), np.array([3, 0])]
    assert first_seen(tasks, 5).tolist() == [1, 0, -1, 2, -1]
