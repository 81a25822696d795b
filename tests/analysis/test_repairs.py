"""What became of the samples: kept, lost, gained, never learned; and what would repair the lost."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_repairs_by_hand import streams

from lastlayer.analysis import (
    FATES,
    INTERFERENCE,
    REPAIRS,
    Losses,
    repair_shares,
    shapley_shares,
    trace_losses,
)
from lastlayer.errors import ShapeError

Stream = tuple[np.ndarray, ...]
INF = np.inf


def slow_losses(
    weight: np.ndarray, bias: np.ndarray, z: np.ndarray, y: np.ndarray, learned: np.ndarray
) -> Losses:
    """The definition, a sample and a task at a time."""
    fates, repairs, interference = (np.zeros((*bias.shape, k), dtype=int) for k in (4, 4, 2))
    for x, c in zip(z.astype(float), y, strict=True):
        s = learned[c]
        if s < 0:
            continue
        seen = (learned >= 0) & (learned <= s)
        then = weight[s] @ x + bias[s]
        for t in range(s, len(bias)):
            now = weight[t] @ x + bias[t]
            was, still = then.argmax() == c, now.argmax() == c
            names = {(1, 1): "kept", (1, 0): "lost", (0, 1): "gained", (0, 0): "never_learned"}
            fates[t, c, FATES.index(names[int(was), int(still)])] += 1
            if not was or still:
                continue
            old = np.where(seen, then, now).argmax() == c
            alone = np.where(seen, now, -INF).argmax() == c
            kinds = {(1, 0): "old_vectors", (0, 1): "no_later_classes", (1, 1): "either"}
            repairs[t, c, REPAIRS.index(kinds.get((int(old), int(alone)), "both"))] += 1
            if alone:
                sized = now.copy()
                for j in np.flatnonzero(~seen & np.isfinite(bias[t])):
                    row, length = weight[t, j].astype(float), np.linalg.norm(weight[t, j])
                    row = row / length * np.linalg.norm(weight[t, c]) if length else row
                    sized[j] = row @ x + bias[t, c]
                interference[t, c, int(sized.argmax() != c)] += 1
    return Losses(fates, repairs, interference)


def assert_same(got: Losses, expected: Losses) -> None:
    for name in ("fates", "repairs", "interference"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_counts_are_those_of_the_definition(seed: int, declared: bool) -> None:
    """On numbers without ties, which rounding would break either way."""
    rng = np.random.default_rng(seed)
    n_tasks, n_classes = rng.integers(1, 5), rng.integers(1, 6)
    weight, bias = rng.normal(size=(n_tasks, n_classes, 3)), rng.normal(size=(n_tasks, n_classes))
    learned = rng.integers(-1, n_tasks, n_classes)
    if not declared:
        bias[np.arange(n_tasks)[:, None] < learned] = -INF
    z, y = rng.normal(size=(40, 3)), rng.integers(0, n_classes, 40)
    assert_same(trace_losses(weight, bias, z, y, learned), slow_losses(weight, bias, z, y, learned))


@given(streams())
def test_counts_sum_to_what_they_are_counts_of(stream: Stream) -> None:
    losses, (_, bias, _, y, learned) = trace_losses(*stream), stream
    come = [
        [(y == c).sum() * (0 <= learned[c] <= t) for c in range(len(learned))]
        for t in range(len(bias))
    ]
    np.testing.assert_array_equal(losses.fates.sum(-1), come)
    np.testing.assert_array_equal(losses.repairs.sum(-1), losses.fates[..., 1])
    np.testing.assert_array_equal(losses.interference.sum(-1), losses.repairs[..., 1:3].sum(-1))


def random_stream(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    weight, z = rng.normal(size=(4, 6, 5)), rng.normal(size=(800, 5))
    bias, y = rng.normal(size=(4, 6)), rng.integers(0, 6, 800)
    return [weight, bias, z, y, np.array([0, 0, 1, 1, 2, 3])]


def test_laws_are_not_kept_by_emptiness() -> None:
    losses = trace_losses(*random_stream())
    for counts in (losses.fates, losses.repairs, losses.interference):
        assert (counts.sum((0, 1)) > 0).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64]))
def test_normalised_rows_interfere_by_direction_alone(seed: int, dtype: type) -> None:
    weight, bias, z, y, learned = random_stream(seed)
    weight = weight.astype(dtype)
    weight /= np.linalg.norm(weight, axis=-1, keepdims=True)
    losses = trace_losses(weight, np.zeros_like(bias, dtype=dtype), z.astype(dtype), y, learned)
    assert losses.interference.sum() > 0
    assert not losses.interference[..., INTERFERENCE.index("size")].any()


def test_longer_and_higher_later_classes_interfere_by_size_alone() -> None:
    """Rows point at their data; only later classes are long, or high."""
    directions = np.eye(3)
    z, y, learned = directions + 0.2, np.arange(3), np.array([0, 1, 2])
    for longer, higher in ((20.0, 0.0), (1.0, 5.0)):
        sizes = np.array([1.0, longer, longer**2])[:, None]
        weight = np.stack(
            [directions * np.where(learned <= t, 1.0, 0)[:, None] * sizes for t in range(3)]
        )
        bias = np.where(learned <= np.arange(3)[:, None], learned * higher, -INF)
        losses = trace_losses(weight, bias, z, y, learned)
        assert losses.interference[-1].sum(0).tolist() == [2, 0]
        assert losses.repairs[-1].sum(0).tolist() == [0, 2, 0, 0]


def test_a_head_that_learns_nothing_does_not_look_safe() -> None:
    weight, z, y = np.zeros((3, 4, 2)), np.ones((8, 2)), np.arange(8) % 4
    losses = trace_losses(weight, np.zeros((3, 4)), z, y, np.array([0, 0, 1, 2]))
    fates = dict(zip(FATES, losses.fates[-1].sum(0).tolist(), strict=True))
    assert fates == {"kept": 2, "lost": 0, "gained": 0, "never_learned": 6}


@given(streams(), st.sampled_from([0.5, 2.0, 8.0]))
def test_the_unit_of_logits_does_not_matter(stream: Stream, factor: float) -> None:
    weight, bias, *rest = stream
    assert_same(
        trace_losses(factor * weight, factor * bias, *rest), trace_losses(weight, bias, *rest)
    )


def table_of(repair: str) -> list[list[bool]]:
    """Say which of the four combinations of the two repairs make such a sample right."""
    alone = {"old_vectors": (True, False), "no_later_classes": (False, True)}
    first, second = alone.get(repair, (repair == "either",) * 2)
    return [[False, second], [first, True]]


@given(st.lists(st.sampled_from(REPAIRS), min_size=1, max_size=9))
def test_shares_are_shapleys(lost: list[str]) -> None:
    counts = np.array([lost.count(name) for name in REPAIRS])
    expected = shapley_shares(np.array([table_of(name) for name in lost]))
    np.testing.assert_allclose(repair_shares(counts), expected)


def test_shares_of_nothing_and_of_something_else() -> None:
    assert np.isnan(repair_shares(np.zeros((2, 4), dtype=int))).all()
    with pytest.raises(ShapeError, match=r"repairs must have the shape \(…, 4\), got \(3,\)"):
        repair_shares(np.zeros(3, dtype=int))


CHECKS: list[Callable[..., object]] = [trace_losses]


@pytest.mark.parametrize("function", CHECKS)
def test_bad_input_is_named(function: Callable[..., object]) -> None:
    weight, bias, z, y, learned = random_stream()
    with pytest.raises(ShapeError, match=r"bias \(T, C\)"):
        function(weight, bias[0], z, y, learned)
