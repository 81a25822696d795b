"""Verdicts: planted claims, true, false and within the noise, and the laws of the verdicts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.analysis.verdict import (
    MARGIN,
    Difference,
    all_hold,
    any_holds,
    paired_difference,
)
from lastlayer.errors import DataError, ShapeError

VERDICTS = ("does not hold", "too close to call", "holds")


def plant(gap: float, noise: float, n: int = 8) -> Difference:
    """Two heads on eight orders: the orders differ by much, the heads by ``gap`` ± ``noise``."""
    order = np.linspace(40, 80, n)
    return paired_difference(order + gap + noise * (-1) ** np.arange(n), order)


def test_a_planted_claim_that_is_true() -> None:
    """Orders differ by ten points: only pairs can show two."""
    assert plant(+2.0, noise=0.5).above() == "holds"
    assert plant(-2.0, noise=0.5).below() == "holds"
    assert plant(+0.0, noise=0.2).within() == "holds"


def test_a_planted_claim_that_is_false() -> None:
    assert plant(-2.0, noise=0.5).above() == "does not hold"
    assert plant(+2.0, noise=0.5).below() == "does not hold"
    assert plant(+2.0, noise=0.5).within() == "does not hold"


def test_a_planted_claim_within_the_noise() -> None:
    difference = plant(+0.5, noise=3.0)
    for judge in (difference.above, difference.below, difference.within):
        assert judge() == "too close to call"


def test_a_difference_too_small_to_matter_is_none() -> None:
    """It is there beyond doubt, and still no reason to prefer one head."""
    difference = plant(+0.3, noise=0.01)
    assert difference.low > 0
    assert difference.above() == "does not hold"
    assert difference.within() == "holds"


def test_eight_runs_reach_three_standard_errors() -> None:
    gaps = np.arange(8.0)
    difference = paired_difference(gaps, np.zeros(8))
    reach = (difference.high - difference.low) / 2
    assert reach / (gaps.std(ddof=1) / 8**0.5) == pytest.approx(3, abs=0.01)


def test_few_runs_are_less_sure() -> None:
    assert plant(+2.0, noise=0.5, n=2).above() == "too close to call"
    alone = paired_difference(np.array([90.0]), np.array([10.0]))
    assert alone.above() == alone.below() == alone.within() == "too close to call"


def test_how_often_noise_is_taken_for_a_difference() -> None:
    """Of equal heads' claims at no margin, about one in a hundred holds, and one is refuted."""
    noise = np.random.default_rng(0).normal(size=(3000, 8))
    found = [paired_difference(gaps, np.zeros(8)).above(0.0) for gaps in noise]
    for verdict in ("holds", "does not hold"):
        assert 0.004 < found.count(verdict) / len(found) < 0.018


numbers = st.floats(-50, 50, allow_nan=False)


@given(numbers, st.floats(0, 20), st.floats(0, 5))
def test_laws_of_the_verdicts(mean: float, reach: float, margin: float) -> None:
    difference = Difference(mean, mean - reach, mean + reach, 8)
    mirrored = Difference(-mean, -mean - reach, -mean + reach, 8)
    assert difference.above(margin) == mirrored.below(margin)
    assert difference.within(margin) == mirrored.within(margin)
    held = [difference.above(margin), difference.below(margin), difference.within(margin)]
    assert held.count("holds") <= 1
    if difference.above(margin) == "holds":
        assert difference.within(margin) == difference.below(margin) == "does not hold"
        assert difference.above(0) == "holds"  # what holds of much holds of less


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=9), numbers)
def test_pairs_have_no_order_and_no_zero(pairs: list[tuple[float, float]], shift: float) -> None:
    first, second = np.array(pairs).T
    there = paired_difference(first, second)
    back = paired_difference(second + shift, first + shift)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-6)
    turned = paired_difference(first[::-1], second[::-1])
    assert (turned.low, turned.high) == pytest.approx((there.low, there.high), abs=1e-6)


@given(st.lists(st.sampled_from(VERDICTS), min_size=1))
def test_a_claim_of_parts(parts: list[str]) -> None:
    worst, best = all_hold(parts), any_holds(parts)
    assert (worst == "holds") == (set(parts) == {"holds"})
    assert (worst == "does not hold") == ("does not hold" in parts)
    assert (best == "holds") == ("holds" in parts)


def test_bad_input_is_named() -> None:
    with pytest.raises(ShapeError, match=r"must be pairs, got \(2,\) and \(3,\)"):
        paired_difference(np.ones(2), np.ones(3))
    with pytest.raises(DataError, match="leave out the runs that diverged"):
        paired_difference(np.array([1.0, np.nan]), np.ones(2))
    with pytest.raises(DataError, match="at least one part"):
        all_hold([])
    assert MARGIN == 0.5  # the resolution of the published comparison


def test_an_interval_that_ends_at_the_margin_does_not_reach_above_it() -> None:
    assert Difference(0.0, -1.0, 0.5, 3).above(0.5) == "does not hold"
    assert Difference(1.0, 0.5, 2.0, 3).above(0.5) == "too close to call"
