"""How likely the labels of some rows are under the noise model, and where they are most so."""

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_RIGHT = 0.05  # of the labels of a class
LIMITS = np.array([(-4.0, 4.0), (-16.0, 2.0), (-6.0, 6.0), (-6.0, 4.0)])
WIDTH = 1.5  # of a weak prior of log τ and of log β: where few rows are contradicted, all clear,
# a large τ explains the labels as well as noise does, and the head's own is the better guess
LONGEST = 2.0  # step of a number
ENOUGH = 1e-4  # of the log likelihood: a search that promises less ends
MOST_STEPS = 100
LEAST_BENT = 1e-3  # of what was expected: a slope that turns less tells nothing of a minimum
# Where searches begin. Few wrong labels among clear rows have two explanations, noise or a large τ,
# of which each is the best one nearby.
TAUS = (-3.5, -2.6, -1.8, -1.1, -0.5, 0.0, 0.5)
FEW_WRONG, MANY_WRONG = (-7.0, -5.0), (-3.5, -2.5, -1.0)


class Look(NamedTuple):
    """What some numbers make of the labels."""

    surprise: float  # −log likelihood
    slope: Array  # of it, by the numbers
    curvature: Array  # about: the slopes of the rows, squared and added
    share: float  # of labels that are wrong


class Likelihood:
    """The labels of some rows, as likely as log τ, logit ε, logit ω and log β make them.

    The logits (n, k) are measured from the largest of their row, and divided by what τ is measured
    in; ``pairs`` (k, k) are truth by label; ``votes`` (n, k) are the logits of another judge, times
    β, without which there are three numbers; ``own`` is log τ of a head that is right about itself.

    >>> rows = Likelihood(np.array([[0.0, -9.0]] * 50), np.array([0] * 49 + [1]), 1 - np.eye(2))
    >>> f"{rows.best(np.array([0.0, -3.0, 0.0]))[1].share:.3f}"
    '0.020'
    """

    def __init__(
        self, logits: Array, y: NDArray[np.int64], pairs: Array, votes: Array | None = None,
        own: float = 0.0,
    ) -> None:  # fmt: skip
        n, self.k = logits.shape
        self.y, self.expected = y, {0: own, 3: 0.0}
        # Rows are columns from here on: NumPy adds up along the first axis much faster.
        self.logits, self.to_own = (np.ascontiguousarray(a.T) for a in (logits, pairs.T[y]))
        self.votes = None if votes is None else np.ascontiguousarray(votes.T)
        self.at = y * n + np.arange(n)  # the place of each row's label
        self.reach = pairs.sum(axis=1)[y]

    def look(self, x: Array) -> Look:
        """Return how surprising the labels are, and which way the numbers lead from there."""
        rate, alike = _sigmoid(x[1]), _sigmoid(x[2])
        s = self.logits * np.exp(-x[0])
        terms = {0: -s}  # the slopes of what p is the softmax of
        if self.votes is not None:
            terms[3] = self.votes * np.exp(x[3])
            s = s + terms[3]
        p = _softmax(s)
        own, paired = self._kinds(p)
        right, wrong, whole = self._chances(own, paired, rate, alike)
        free, others = right > LEAST_RIGHT, self.k - 1
        slopes = np.empty((len(x), len(own)))
        slopes[1] = (wrong - free * (1 - alike + alike * self.reach) * own) * rate * (1 - rate)
        by_kind = paired - (1 - own) / others - free * (self.reach - 1) * own
        slopes[2] = by_kind * rate * alike * (1 - alike)
        for place, term in terms.items():
            of_p = p * term
            mean = of_p.sum(axis=0)
            to_own = own * (term.take(self.at) - mean)
            pulled = np.einsum("kn,kn->n", of_p, self.to_own) - mean * paired
            slopes[place] = right * to_own + rate * (alike * pulled - (1 - alike) * to_own / others)
        slopes /= whole
        slope, curvature = -slopes.sum(axis=1), slopes @ slopes.T
        # A weak prior settles ω where there is no noise to tell it.
        slope[2] -= 0.5 - alike
        curvature[2, 2] += alike * (1 - alike)
        prior = np.log(alike) + np.log1p(-alike)
        surprise = -float(np.log(whole).sum()) - 0.5 * float(prior)
        for place in terms:
            away = (x[place] - self.expected[place]) / WIDTH
            surprise += float(away**2) / 2
            slope[place] += away / WIDTH
            curvature[place, place] += 1 / WIDTH**2
        return Look(surprise, slope, curvature, float((rate * wrong / whole).mean()))

    def _kinds(self, p: Array) -> tuple[Array, Array]:
        """Return how probable each row is of its label, and of a class paired with that (n,)."""
        return p.take(self.at), np.einsum("kn,kn->n", p, self.to_own)

    def _chances(
        self, own: Array, paired: Array, rate: float, alike: float
    ) -> tuple[Array, Array, Array]:
        """Return how often labels of a class are right, how likely wrong ones and all are (n,)."""
        right = np.maximum(1 - rate * (1 - alike + alike * self.reach), LEAST_RIGHT)
        wrong = (1 - alike) * (1 - own) / (self.k - 1) + alike * paired
        return right, wrong, np.maximum(right * own, 1e-300) + rate * wrong

    def overall(self) -> Array:
        """Return the three numbers under which the labels are least surprising."""
        kinds = {tau: self._kinds(_softmax(self.logits * np.exp(-tau))) for tau in TAUS}

        def surprise(tau: float, rate: float) -> float:
            return -float(np.log(self._chances(*kinds[tau], _sigmoid(rate), 0.5)[2]).sum())

        found = []
        for rates in (FEW_WRONG, MANY_WRONG):
            start = min(product(TAUS, rates), key=lambda at: surprise(*at))
            found.append(self.best(np.array([*start, 0.0])))
        return min(found, key=lambda one: one[1].surprise)[0]

    def best(self, start: Array, fixed: tuple[int, ...] = ()) -> tuple[Array, Look]:
        """Return the numbers near a start under which the labels are least surprising.

        Steps are those of BFGS, which begins with Fisher's curvature, damped where they lead
        nowhere. The ``fixed`` ones of the numbers stay as they are.
        """
        x = np.clip(start, *LIMITS[: len(start)].T)
        at, damping = self.look(x), 1e-3
        curvature = at.curvature
        for _ in range(MOST_STEPS):
            step = _step(x, at.slope, curvature, damping, fixed)
            if -(step @ at.slope) < ENOUGH:
                break
            there = self.look(x + step)
            curvature = _bent(curvature, step, there.slope - at.slope)
            if there.surprise < at.surprise:
                x, at, damping = x + step, there, damping / 10
            elif damping > 1e8:
                break
            else:
                damping *= 10
        return x, at


def _step(
    x: Array, slope: Array, curvature: Array, damping: float, fixed: tuple[int, ...]
) -> Array:
    """Return a step of the numbers that are free, and not at a limit that it would cross."""
    low, high = LIMITS[: len(x)].T
    stuck = ((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0))
    stuck[list(fixed)] = True
    free, step = np.flatnonzero(~stuck), np.zeros(len(x))
    curvature = curvature[np.ix_(free, free)]
    level = damping * np.diag(curvature) + 1e-9
    step[free] = -np.linalg.solve(curvature + np.diag(level), slope[free])
    step *= min(1.0, LONGEST / max(np.abs(step).max(initial=0.0), 1e-300))
    return np.clip(x + step, low, high) - x


def _bent(curvature: Array, step: Array, turn: Array) -> Array:
    """Return the curvature that also explains by how much the slope turned on the last step."""
    along, bent = curvature @ step, step @ turn
    if bent <= LEAST_BENT * (step @ along):  # no valley: what is known serves better
        return curvature
    return curvature + np.outer(turn, turn) / bent - np.outer(along, along) / (step @ along)


def _softmax(s: Array) -> Array:
    """Return the softmax of each column; its largest logit is near enough to 0 for exp."""
    p: Array = np.exp(s)
    p /= p.sum(axis=0)
    return p


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))
