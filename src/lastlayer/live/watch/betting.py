"""Bets against "nothing has changed": their wealth, and limits of what they bet against.

While nothing has changed, x in [0, 1] is at most p on average, given everything before. A bet
multiplies its stake by 1 + θ (x − p)/p with 0 ≤ θ < 1, so a stake is never expected to grow, and
wealth beyond 1/α is ever seen with a chance of at most α (Ville). New money enters with each row,
so that what happened long ago does not weigh on what happens now. Proofs: docs/decisions/19.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

GRID = np.array([0.8, 0.4, 0.2, 0.1, 0.05, 0.025])  # θ of the bets on one x
LEAST = 1e-3  # a smaller p counts as this: a single x = 1 must not decide everything
MOST = 1e30  # wealth beyond it is given away, so that numbers stay finite
TOGETHER = 64  # rows whose products are taken at once, without over- or underflow
STEPS = 128.0  # from a mean to 1, at which its limit is looked for
SCALE = 100  # rows within which half of the money for "at most α ever" is spent


def unspent(row: Array) -> Array:
    """Return which part of one unit of money is left after so many rows, for bets begun later.

    >>> unspent(np.array([0, 100, 10_000])).round(2).tolist()
    [1.0, 0.5, 0.13]
    """
    left: Array = 1 / (1 + np.log2(1 + np.asarray(row) / SCALE))
    return left


def spent(row: Array) -> Array:
    """Return what begins to be bet with each row, counted from 1; all of it sums to 1."""
    return unspent(np.asarray(row) - 1) - unspent(row)


def each_row(row: Array) -> Array:
    """Return one unit of money for each row: bets for a mean time between false alarms."""
    return np.ones(np.shape(row))


def no_money_left(row: Array) -> Array:
    """Return what ``each_row`` has put aside: nothing."""
    return np.zeros(np.shape(row))


def bet(stakes: Array, money: Array, share: Array, x: Array, p: Array) -> tuple[Array, Array]:
    """Bet along a sequence of rows, for several groups at once.

    Returns the wealth (n, g) that is at stake after each row, and the stakes after all.

    Args:
        stakes: (g, d, k) what each bet has.
        money: (n, g) what is newly bet with each row.
        share: (d, k) how new money is divided among bets; sums to 1.
        x: (n, g, d) what is bet on; NaN where a group has no row any more, or nothing is known.
        p: (g, d) how large x is on average at most; ∞: nothing is bet.
    """
    wealth = np.empty(money.shape)
    for begin in range(0, len(x), TOGETHER):
        rows = slice(begin, begin + TOGETHER)
        against = np.maximum(p, LEAST)
        gain = np.nan_to_num(x[rows] / against - np.isfinite(against))
        factor = 1 + gain[..., None] * GRID[: share.shape[1]]
        grown = np.cumprod(factor, axis=0)
        # S_t = (S_{t−1} + new_t) L_t, solved for all rows: S_t = P_t (S_0 + Σ new_j / P_{j−1}).
        before = np.concatenate([np.ones((1, *stakes.shape)), grown[:-1]])
        new = money[rows][:, :, None, None] * share / before
        path = grown * (stakes + new.cumsum(axis=0))
        total = path.sum(axis=(2, 3))
        wealth[rows] = np.minimum(total, MOST)
        stakes = path[-1] * np.minimum(1, MOST / np.maximum(total[-1], MOST))[:, None, None]
    return wealth, stakes


def most_errors(wrong: Array | int, rows: Array | int, delta: Array | float) -> Array:
    """Return the rate that wrong answers exceed with a chance of at most δ (Clopper–Pearson).

    >>> most_errors(80, 1000, 0.01).round(3).tolist()
    0.102
    """
    from scipy.special import betaincinv  # noqa: PLC0415  (scipy.stats would take a second)

    wrong, rows = np.asarray(wrong), np.asarray(rows)
    found = betaincinv(wrong + 1, np.maximum(rows - wrong, 1), 1 - delta)
    most: Array = np.where(wrong < rows, found, 1.0)
    return most


def most_exceeding(passing: Array, rows: Array, delta: Array | float) -> Array:
    """Return the rate at which a limit is passed, with a chance of at most δ that it is more.

    The ``passing``-th largest of so many rows is passed by another one with a probability that
    follows the law Beta(passing, rows + 1 − passing), or less where values are tied.

    >>> most_exceeding(np.array([50]), np.array([1000]), 0.01).round(3).tolist()
    [0.067]
    """
    from scipy.special import betaincinv  # noqa: PLC0415

    passing, rows = np.asarray(passing), np.asarray(rows)
    found = betaincinv(np.maximum(passing, 1), np.maximum(rows + 1 - passing, 1), 1 - delta)
    most: Array = np.where((passing >= 1) & (passing <= rows), found, 1.0)
    return most


def most_on_average(rows: Array, total: Array, squares: Array, delta: Array | float) -> Array:
    """Return what a mean of values in [0, 1] exceeds with a chance of at most δ, from their sums.

    Were the mean p, the bets 1 + θ (p − v)/(1 − p) on rows of the calibration would not be expected
    to grow. Their wealth rises with p, and is at least what is compared here, since log(1 + θ u) ≥
    θ u + (log(1 − θ) + θ) u² for u ≥ −1; the limit is the first p at which that reaches 1/δ.
    """
    rows, total, squares, delta = np.broadcast_arrays(rows, total, squares, delta)
    mean = total / np.maximum(rows, 1)
    wanted = -np.log(delta)
    thetas = np.array([0.9, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02])[:, *[None] * mean.ndim]

    def at(step: Array) -> Array:
        found: Array = mean + (1 - mean) * (step / STEPS) ** 2
        return found

    def reached(step: Array) -> Array:
        p = at(step)
        rest = np.maximum(1 - p, 1e-12)
        ahead = rows * (p - mean) / rest
        spread = (rows * p**2 - 2 * p * total + squares) / rest**2
        wealth = thetas * ahead + (np.log1p(-thetas) + thetas) * spread
        top = wealth.max(axis=0)
        found: Array = top + np.log(np.exp(wealth - top).mean(axis=0)) >= wanted
        return found

    low, high = np.zeros(mean.shape), np.full(mean.shape, STEPS)
    for _ in range(int(np.log2(STEPS))):
        middle = (low + high) / 2
        enough = reached(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(rows > 0, at(high), 1.0)


_TILTS = np.geomspace(0.003, 8, 24)


def interval(total: Array, rows: Array, alpha: Array | float) -> tuple[Array, Array]:
    """Return between which limits (m,) the mean of the expectations of x in [0, 1] lies.

    Whatever was bet on and however often one looks: at every moment at once, with a chance of at
    least 1 − α (the mixture over λ of exp(λ Σ x) / (1 + p (e^λ − 1))^n is never expected to grow).

    >>> low, high = interval(np.array([80]), np.array([1000]), 0.05)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.054], [0.113])
    """
    total, rows, alpha = np.broadcast_arrays(total, rows, alpha)
    mean, wanted = np.minimum(total / np.maximum(rows, 1), 1), np.log(2 * len(_TILTS) / alpha)

    def impossible(p: Array, tilts: Array) -> Array:
        factors = np.log1p(p[:, None] * np.expm1(tilts))
        logs = tilts * total[:, None] - rows[:, None] * factors
        top = logs.max(axis=1)
        found: Array = np.log(np.exp(logs - top[:, None]).sum(axis=1)) + top >= wanted
        return found

    low = _edge(lambda p: impossible(p, _TILTS), mean, np.zeros(len(mean)))
    high = _edge(lambda p: impossible(p, -_TILTS), mean, np.ones(len(mean)))
    return low, high


def _edge(impossible: Callable[[Array], Array], inside: Array, outside: Array) -> Array:
    """Return the p farthest from ``inside`` that are still possible, by halving."""
    inside = np.where(impossible(outside), inside, outside)
    for _ in range(40):
        middle = (inside + outside) / 2
        wrong = impossible(middle)
        inside, outside = np.where(wrong, inside, middle), np.where(wrong, middle, outside)
    return outside


def named(evidence: Array, share: float) -> Array:
    """Return which of several nulls are false, at most this share wrongly on average (e-BH).

    On average at any one moment at which one stops. The evidence (g,) is e-values times weights
    that sum to 1.

    >>> named(np.array([3.0, 25.0, 11.0]), 0.05).tolist()
    [False, True, True]
    """
    falling = np.sort(evidence)[::-1]
    enough = falling * np.arange(1, len(falling) + 1) >= 1 / share
    if not enough.any():
        return np.zeros(len(evidence), dtype=bool)
    found: Array = evidence >= falling[enough.nonzero()[0][-1]]
    return found


@dataclass(frozen=True)
class Promise:
    """What is promised of one question: at most α ever, or at least so many rows on average."""

    money: Callable[[Array], Array]  # that is newly bet with a row, by its number from 1
    aside: Callable[[Array], Array]  # what is kept for later rows
    enough: float  # wealth at which there is an alarm
    delta: float  # the chance that limits from this calibration are too low
    part: float = 1.0  # of that chance over all calibrations, which later ones share


def at_most(alpha: float) -> Promise:
    """Promise that a false alarm ever comes with a chance of at most α: a fifth for calibration."""
    return Promise(spent, unspent, 1 / (0.8 * alpha), 0.2 * alpha)


def every(rows: float, delta: float) -> Promise:
    """Promise so many rows between false alarms on average, where limits are not too low."""
    return Promise(each_row, no_money_left, rows, delta)
