"""Bets: not expected to grow while nothing has changed; limits are what they say."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lastlayer.live.watch.betting import (
    GRID,
    MOST,
    Promise,
    at_most,
    bet,
    each_row,
    every,
    interval,
    most_errors,
    most_exceeding,
    most_on_average,
    named,
    spent,
    unspent,
)
from lastlayer.live.watch.rules import chances
from lastlayer.live.watch.wealth import Wealth

SHARE = np.full((1, len(GRID)), 1 / len(GRID))
EVER, MEAN = at_most(0.05), every(1000, 0.01)


@pytest.mark.parametrize("promise", [EVER, MEAN], ids=["ever", "mean"])
@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
def test_wealth_is_not_expected_to_grow(promise: Promise, p: float) -> None:
    """Over all sequences of eight rows, each with its chance; rows between alarms pay 1 each."""
    n, expected = 8, 0.0
    for xs in product([0.0, 1.0], repeat=n):
        x = np.array(xs)[:, None]
        made, _ = Wealth.of(1, SHARE).take(x, np.zeros(n, int), np.array([[p]]), SHARE, promise)
        chance = np.prod(np.where(x > 0, p, 1 - p))
        expected += float(chance) * float(made.evidence(promise)[0])
    assert expected == pytest.approx(1 if promise is EVER else n)


@given(
    seed=st.integers(0, 2**31), n=st.integers(1, 300), groups=st.integers(1, 5),
    cuts=st.lists(st.integers(0, 300), max_size=4),
)  # fmt: skip
def test_batches_make_no_difference(seed: int, n: int, groups: int, cuts: list[int]) -> None:
    """And one row after the other, by the recursion as it is written, gives the same."""
    rng = np.random.default_rng(seed)
    x, group = rng.random((n, 2)) ** 3, rng.integers(groups, size=n)
    p, share = rng.uniform(0.05, 0.9, (groups, 2)), rng.dirichlet(np.ones(6), size=1).reshape(2, 3)
    whole, course = Wealth.of(groups, share).take(x, group, p, share, EVER)
    parts, evidence = Wealth.of(groups, share), []
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), n], strict=True):
        parts, some = parts.take(x[begin:end], group[begin:end], p, share, EVER)
        evidence.append(some.evidence)
    assert np.allclose(np.concatenate(evidence), course.evidence, rtol=1e-9)
    stakes, rows = np.zeros((groups, 2, 3)), np.zeros(groups)
    path, low, since = np.zeros(groups), np.zeros(groups), np.zeros(groups)
    sums = np.zeros((groups, 2))
    for t, g in enumerate(group):
        rows[g] += 1
        at_stake = stakes[g] + spent(rows[g]) * share
        stakes[g] = at_stake * (1 + GRID[:3] * ((x[t] - p[g]) / p[g])[:, None])
        path[g] += np.log(stakes[g].sum() / at_stake.sum())
        sums[g] += x[t]
        if path[g] < low[g]:
            low[g], since[g], sums[g] = path[g], rows[g], 0
        assert course.evidence[t] == pytest.approx(stakes[g].sum() + unspent(rows[g]), rel=1e-9)
    for made in (whole, parts):
        for name, right in vars().copy().items():
            if name in ("stakes", "rows", "path", "low", "since", "sums"):
                assert np.allclose(getattr(made, name), right, rtol=1e-7, atol=1e-9), name


def test_all_money_is_spent_once() -> None:
    rows = np.arange(1, 100_000)
    assert spent(rows).min() > 0
    assert spent(rows).sum() + unspent(rows[-1]) == pytest.approx(1)


def test_wealth_stays_finite_and_comes_down_again() -> None:
    promise, p = EVER, np.array([[0.001]])
    made, course = Wealth.of(1, SHARE).take(
        np.ones((500, 1)), np.zeros(500, int), p, SHARE, promise
    )
    assert course.evidence.max() <= MOST + 1
    made, course = made.take(np.zeros((30_000, 1)), np.zeros(30_000, int), p, SHARE, promise)
    assert np.isfinite(made.stakes).all()
    assert course.evidence[-1] < 1e20


def test_a_mean_time_between_alarms_is_kept() -> None:
    """Simulated: the mean number of rows until 200 is reached, where x is as often 1 as it may."""
    runs, n = 400, 3000
    x = (np.random.default_rng(0).random((n, runs, 1)) < 0.3).astype(float)
    stakes, p = np.zeros((runs, 1, 6)), np.full((runs, 1), 0.3)
    wealth, _ = bet(stakes, each_row(np.ones((n, runs))), SHARE, x, p)
    over = wealth >= 200
    lengths = np.where(over.any(axis=0), over.argmax(axis=0) + 1, n)
    assert 200 - 3 * lengths.std() / np.sqrt(runs) <= lengths.mean() <= 400


@given(rows=st.integers(1, 500), share=st.floats(0, 1), delta=st.floats(1e-6, 0.5))
def test_limits_of_rates_are_those_of_the_binomial_law(
    rows: int, share: float, delta: float
) -> None:
    wrong = int(share * rows)
    p = most_errors(wrong, rows, delta)
    right = stats.binomtest(wrong, rows, alternative="less").proportion_ci(1 - delta, "exact").high
    assert p == pytest.approx(right)
    assert most_exceeding(np.array(wrong), np.array(rows), delta) == pytest.approx(
        1 if wrong < 1 else stats.beta(wrong, rows + 1 - wrong).ppf(1 - delta)
    )


@pytest.mark.parametrize("law", [stats.beta(8, 8), stats.beta(0.3, 3), stats.bernoulli(0.3)])
@pytest.mark.parametrize("n", [5, 40, 400])
def test_a_mean_exceeds_its_limit_as_rarely_as_asked(law: object, n: int) -> None:
    draws = law.rvs(size=(4000, n), random_state=np.random.default_rng(1))  # type: ignore[attr-defined]
    most = most_on_average(np.array(n), draws.sum(1), (draws**2).sum(1), 0.05)
    assert (most < law.mean()).mean() <= 0.05  # type: ignore[attr-defined]
    # It says something: where rows are many it comes close.
    assert n < 400 or (most - law.mean()).mean() < 5 * law.std() / np.sqrt(n)  # type: ignore[attr-defined]


def test_limits_without_rows_say_nothing() -> None:
    assert most_on_average(np.array(0), np.array(0.0), np.array(0.0), 0.01) == 1
    assert most_exceeding(np.array(0), np.array(0), 0.01) == 1
    assert most_errors(0, 0, 0.01) == 1
    assert [end.tolist() for end in interval(np.zeros(1), np.zeros(1), 0.05)] == [[0], [1]]


def test_a_confidence_sequence_covers_at_every_moment_at_once() -> None:
    """Also where the probability changes all the time: it is about the mean of all of them."""
    rng, missed, runs = np.random.default_rng(0), 0, 120
    moments = np.unique(np.geomspace(1, 2000, 25).astype(int))
    for _ in range(runs):
        p = rng.uniform(0, 0.6, 2000)
        total, mean = (rng.random(2000) < p).cumsum(), p.cumsum() / np.arange(1, 2001)
        low, high = interval(total[moments - 1], moments, 0.2)
        missed += bool(((mean[moments - 1] < low) | (mean[moments - 1] > high)).any())
    assert missed <= 0.2 * runs
    low, high = interval(np.array([600]), np.array([2000]), 0.05)
    assert high - low < 0.12


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8), st.floats(0.01, 0.5))
def test_names_are_those_of_e_bh(evidence: list[float], share: float) -> None:
    """By its definition: the most k for which k values are at least 1/(k · share)."""
    values = np.array(evidence)
    k = max(
        (k for k in range(1, len(values) + 1) if (values >= 1 / (k * share)).sum() >= k), default=0
    )
    right = values >= 1 / (k * share) if k else np.zeros(len(values), dtype=bool)
    assert named(values, share).tolist() == right.tolist()


@pytest.mark.parametrize("p", [0.05, 0.2, 0.4, 0.6])
def test_several_limits_promise_what_one_does(p: float) -> None:
    """Over all calibrations and all sequences: the evidence is not expected to exceed its unit."""
    n, rows, share = 20, 7, np.array([[0.0, 0.5, 0.5]])
    chance, counts = chances(Promise(spent, unspent, 1 / 0.04, 0.02))
    most = most_errors(np.arange(n + 1)[:, None], n, chance)  # (calibration, limit)
    xs = np.array(list(product([0.0, 1.0], repeat=rows)))
    stakes = np.broadcast_to(share, (len(counts), 1, 3))
    expected = failed = 0.0
    for wrong, limits in enumerate(most):
        likely = stats.binom(n, p).pmf(wrong)
        if limits[-1] < p:
            failed += likely
            continue
        for x in xs:
            each = np.tile(x[:, None, None], (1, len(counts), 1))
            wealth, _ = bet(stakes, np.zeros((rows, len(counts))), share, each, limits[:, None])
            of_all = p ** x.sum() * (1 - p) ** (rows - x.sum())
            expected += likely * of_all * float((counts * wealth[-1]).min())
    assert failed <= chance[-1]
    assert expected <= 1
    # Counting every wealth as much as the last one would promise too much.
    assert counts[0] < 1 < counts[-1]


def test_limits_share_what_counts_among_calibrations() -> None:
    first, second = (chances(replace(every(100, 0.04 * part), part=part)) for part in (0.5, 0.25))
    assert np.allclose(first[0], 2 * second[0])
    assert np.array_equal(first[1], second[1])
    chance, counts = first
    assert counts[0] + (np.diff(counts) * 2 * chance[:-1]).sum() == pytest.approx(1)
