"""The three questions of a watch: what each bets on, and against what."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lastlayer.heads.calibration import Calibration
from lastlayer.heads.watch_reference import DIRECTIONS, Reference, rank
from lastlayer.live.watch.betting import (
    GRID,
    Array,
    Promise,
    most_errors,
    most_exceeding,
    most_on_average,
)
from lastlayer.live.watch.wealth import Wealth

WORSE, STRANGE, MOVED = QUESTIONS = ("worse", "strange", "moved")
UNKNOWN = 0.05  # of the calibration rows are beyond the limit of "strange"
ERRORS = 1  # the place of wrong answers among the things that are looked at of a class
SIDES = 2  # things looked at of a class before its directions: strange, and wrong
FEW = 3  # bets on each of the many things that are looked at of a class
RANK = 1  # the place of ranks among the things that are looked at of all rows
USUAL_RANK = 0.5  # among rows like itself
MIDDLE = slice(1, 4)  # of the grid: where the change that is looked for is a large one
RECENT = 32  # inputs turned away of which it is known where they lie
LIMITS = 4  # of the same rate, from one that is too low as often as not to one that hardly ever is
LIKELY = 0.5  # the chance that the lowest of them is too low
LOWEST = 0.5  # how much wealth against it counts


@dataclass(frozen=True, eq=False)
class Rule:
    """What a question bets on, for groups: classes, or limits from the lowest to the highest.

    A row belongs to its class, and the wealth of all classes is their sum. Or it belongs to every
    limit, and the wealth is that of the limit that has least: whichever is high enough, it holds.
    """

    promise: Promise
    p: Array  # (g, d) how large x is on average at most, while nothing has changed
    usual: Array  # (g, d) how large it was at the calibration
    share: Array  # (d, k) how money is divided among bets
    weight: Array  # (g,) of each group in the wealth of all
    limits: bool  # whether groups are limits, not classes

    @property
    def most(self) -> Array:
        """How large x can have been on average (g, d), by the highest limit."""
        return np.broadcast_to(self.p[-1], self.p.shape) if self.limits else self.p

    @property
    def part(self) -> Array:
        """Which part (g,) of a chance to be wrong each group gets."""
        return np.ones(len(self.p)) if self.limits else self.weight / self.weight.sum()

    def evidence(self, wealth: Wealth) -> float:
        """Return the wealth of all groups together."""
        weighted = self.weight * wealth.evidence(self.promise)
        return float(weighted.min() if self.limits else weighted.sum())

    def take(self, wealth: Wealth, x: Array, group: Array | None) -> tuple[Wealth, Array]:
        """Bet on x (n, d) of rows; return what is remembered then, and the wealth after each (n,).

        ``group`` (n,) holds their classes; None where groups are limits.
        """
        if group is not None:
            made, course = wealth.take(x, group, self.p, self.share, self.promise)
            return made, self.evidence(wealth) + (self.weight[group] * course.change).cumsum()
        g, n = len(self.p), len(x)
        every = np.repeat(np.arange(g), n)
        made, course = wealth.take(np.tile(x, (g, 1)), every, self.p, self.share, self.promise)
        return made, (self.weight[:, None] * course.evidence.reshape(g, n)).min(axis=0)


def chances(promise: Promise) -> tuple[Array, Array]:
    """Return the chance that each limit is too low, and how much the wealth against it counts.

    The less likely the truth is above a limit, the more the wealth against the next one counts;
    on average over calibrations never more than once (docs/decisions/19).

    >>> from lastlayer.live.watch.betting import every
    >>> chance, counts = chances(every(1000, 0.01))
    >>> chance.round(3).tolist(), counts.round(2).tolist()
    ([0.5, 0.136, 0.037, 0.01], [0.5, 0.83, 2.06, 6.59])
    """
    chance = np.geomspace(LIKELY, promise.delta / promise.part, LIMITS)
    further = (1 - LOWEST) / (LIMITS - 1) / chance[:-1]
    return chance * promise.part, np.cumsum([LOWEST, *further])


def worse(promise: Promise, found: Calibration, about: Reference, tolerance: float) -> Rule:
    """Return the rule for answers: ``badness`` of each."""
    wrong, rows, part = int(about.wrong.sum()), found.rows, np.array([1, 3, 1, 1]) / 6
    chance, counts = chances(promise)
    delta = chance[:, None] * part
    rates = most_exceeding(about.reaching, np.array(rows), delta[:, 2:])
    errors, ranks = most_errors(wrong, rows, delta[:, 0]), most_rank(about.ranked[0], delta[:, 1])
    p = np.minimum(np.column_stack([errors, ranks, rates]) + tolerance, 1)
    usual = [wrong / rows, USUAL_RANK, *(about.reaching / (rows + 1))]
    return of_all_rows(promise, part, usual, p, counts)


def strange(promise: Promise, found: Calibration, about: Reference) -> tuple[Rule, float]:
    """Return the rule for inputs, ``strangeness`` of each, and the limit of novelty."""
    passing, limit = found.ranked(int(UNKNOWN * (found.rows + 1)))
    part = np.array([1, 1]) / 2
    chance, counts = chances(promise)
    delta = chance[:, None] * part
    beyond = most_exceeding(np.array(passing), np.array(found.rows), delta[:, 0])
    p = np.column_stack([beyond, most_rank(about.ranked[1], delta[:, 1])])
    usual = [passing / (found.rows + 1), USUAL_RANK]
    return of_all_rows(promise, part, usual, p, counts), limit


def of_all_rows(
    promise: Promise, part: Array, usual: Sequence[float], p: Array, counts: Array
) -> Rule:
    """Return the rule for some things (d,) that are looked at of every row, whatever its class.

    Each gets a part of the money; of the first, small changes are bet on as well.
    """
    share = np.zeros((len(part), len(GRID)))
    share[0], share[1:, MIDDLE] = 1 / len(GRID), 1 / len(GRID[MIDDLE])
    usual_of_each = np.tile(usual, (len(p), 1))
    return Rule(promise, p, usual_of_each, share * part[:, None], counts, limits=True)


def most_rank(ranked: Array, delta: Array) -> Array:
    """Return what the mean of ranks exceeds with a chance of at most δ."""
    rows, total, squares = ranked
    return most_on_average(rows, total, squares, delta)


def badness(about: Reference, wrong: Array, far: Array) -> Array:
    """Return what is bet on of answers (n, d): wrong ones, and how far another class is ahead.

    How far (n,) is told by ``ahead``; NaN where it is not known.
    """
    beyond = np.where(np.isnan(far)[:, None], np.nan, far[:, None] > about.edge)
    ranks = np.where(np.isnan(far), np.nan, rank(far, about.places[0]))
    return np.concatenate([wrong[:, None], ranks[:, None], beyond], axis=1, dtype=np.float64)


def strangeness(about: Reference, novelty: Array, limit: float) -> Array:
    """Return what is bet on of inputs (n, d): those beyond the limit, and how strange each is."""
    return np.stack([novelty > limit, rank(novelty, about.places[1])], axis=1).astype(np.float64)


def moved(promise: Promise, about: Reference, shares: bool) -> Rule:
    """Return the rule for classes: beyond their own limit, answered wrongly, or shifted.

    The promise is of all together. They share it by how many rows they had (``shares``), or else
    each of their rows counts in full, towards a number of rows between alarms.
    """
    # A third of a class's share is for its limit, one for errors, one for both senses of all
    # directions.
    part = np.concatenate([[1 / 3, 1 / 3], np.full(2 * DIRECTIONS, 1 / 6 / DIRECTIONS)])
    weight = about.rows / max(int(about.rows.sum()), 1)
    # A class without rows has nothing to be compared with: δ does not matter there.
    delta = np.where(weight > 0, promise.delta * weight, 1)[:, None] * part
    beyond = most_exceeding(about.passing, about.rows, delta[:, 0])
    wrong = most_errors(about.wrong, about.rows, delta[:, 1])
    counted = about.counted[:, None]
    up = most_on_average(counted, about.total, about.squares, delta[:, SIDES : SIDES + DIRECTIONS])
    # The same of 1 − v, for shifts in the other sense.
    total, squares = counted - about.total, counted - 2 * about.total + about.squares
    down = most_on_average(counted, total, squares, delta[:, SIDES + DIRECTIONS :])
    p = np.concatenate([beyond[:, None], wrong[:, None], up, down], axis=1)
    mean = about.total / np.maximum(counted, 1)
    rates = np.stack([about.passing, about.wrong], axis=1) / (about.rows + 1)[:, None]
    usual = np.concatenate([rates, mean, 1 - mean], axis=1)
    share = np.repeat(part[:, None] / FEW, FEW, axis=1)
    if not shares:
        weight = np.ones(len(weight))
    return Rule(promise, p, usual, share, weight, limits=False)
