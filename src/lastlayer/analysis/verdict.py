"""Verdicts on claims about differences: each holds, does not hold, or is too close to call.

Two heads are compared on the same orders, seeds and data, so their differences are paired. The
interval of the mean difference is Student's at 98 %: of eight runs, as in the paper, it reaches
three standard errors to each side (2.998), which is the rule by which our numbers are compared with
the published ones. By the same rule, differences of up to half a point do not count. Both were
fixed before the study was run again, with its earlier results known (docs/decisions/11).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal

import numpy as np

from lastlayer.analysis.inputs import Floats, takes_arrays
from lastlayer.core.checks import choice, expect
from lastlayer.errors import DataError, ShapeError

Verdict = Literal["does not hold", "too close to call", "holds"]

LEVEL = 0.98
MARGIN = 0.5  # percentage points

_FROM_WORST: tuple[Verdict, ...] = ("does not hold", "too close to call", "holds")


@dataclass(frozen=True)
class Difference:
    """A mean difference in percentage points, and the interval in which it lies.

    >>> print(Difference(1.5, low=0.9, high=2.1, n=8))
    +1.50 (+0.90 to +2.10)
    """

    mean: float
    low: float
    high: float
    n: int  # pairs

    def above(self, margin: float = MARGIN) -> Verdict:
        """Judge the claim that the difference is above the margin."""
        if self.low > margin:
            return "holds"
        return "does not hold" if self.high <= margin else "too close to call"

    def below(self, margin: float = MARGIN) -> Verdict:
        """Judge the claim that the difference is below minus the margin."""
        return Difference(-self.mean, -self.high, -self.low, self.n).above(margin)

    def within(self, margin: float = MARGIN) -> Verdict:
        """Judge the claim that there is no difference: that it is at most the margin, either way.

        >>> Difference(0.1, low=-0.2, high=0.4, n=8).within()
        'holds'
        """
        if -margin <= self.low and self.high <= margin:
            return "holds"
        apart = self.low > margin or self.high < -margin
        return "does not hold" if apart else "too close to call"

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


@takes_arrays
def paired_difference(first: Floats, second: Floats) -> Difference:
    """Return the mean of ``first − second`` over pairs, with its 98 % interval.

    One pair says nothing about its uncertainty: its interval is infinite, so every claim about it
    is too close to call. Pairs that all differ by the same amount leave no uncertainty.

    Args:
        first: (n,) accuracies in percent, one for each order or seed.
        second: (n,) accuracies of the other head, in the same orders or seeds.

    >>> difference = paired_difference(np.array([61.0, 63.0, 62.0]), np.array([60.0, 60.0, 60.0]))
    >>> print(difference, difference.above())
    +2.00 (-2.02 to +6.02) too close to call
    """
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ShapeError(f"first and second must be pairs, got {first.shape} and {second.shape}")
    gaps = np.asarray(first, dtype=np.float64) - second
    if not np.isfinite(gaps).all():
        raise DataError("accuracies must be finite: leave out the runs that diverged")
    mean, n = float(gaps.mean()), len(gaps)
    if n == 1:
        return Difference(mean, -inf, inf, n)
    from scipy.special import stdtrit  # noqa: PLC0415  (slow to import)

    reach = float(stdtrit(n - 1, (1 + LEVEL) / 2) * gaps.std(ddof=1) / sqrt(n))
    return Difference(mean, mean - reach, mean + reach, n)


def opposite(verdict: Verdict) -> Verdict:
    """Return the verdict on the opposite claim.

    >>> opposite("holds"), opposite("too close to call")
    ('does not hold', 'too close to call')
    """
    choice(verdict, _FROM_WORST, "a verdict")
    return _FROM_WORST[-1 - _FROM_WORST.index(verdict)]


def all_hold(verdicts: Iterable[Verdict]) -> Verdict:
    """Judge a claim of several parts: it is as good as its worst part.

    >>> all_hold(["holds", "too close to call"])
    'too close to call'
    """
    return _FROM_WORST[min(_places(verdicts))]


def any_holds(verdicts: Iterable[Verdict]) -> Verdict:
    """Judge a claim that needs only one of its parts: it is as good as its best part.

    >>> any_holds(["does not hold", "too close to call"])
    'too close to call'
    """
    return _FROM_WORST[max(_places(verdicts))]


def _places(verdicts: Iterable[Verdict]) -> list[int]:
    expect(verdicts, Iterable, "verdicts", "a list of verdicts")
    found = [_FROM_WORST.index(choice(verdict, _FROM_WORST, "a verdict")) for verdict in verdicts]
    if not found:
        raise DataError("a claim must have at least one part, got none")
    return found
