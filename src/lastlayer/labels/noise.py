"""How many labels are wrong: a model of noise, fitted to leave-one-out logits by its likelihood.

Noise cannot be told from classes that overlap without a model of it. This one says: what a row
truly is follows p = softmax(logits/τ); the share ε of labels is wrong, whatever the row, given its
class. Of these, 1 − ω fall on all rows alike, and are any other class, each as likely; the others
fall on pairs of classes: in proportion to how alike these are, or, where the labels clearly say
so, to how often rows answered with the one have the other as their label. So label j has

    (1 − ε r_j) p_j + ε Σ_c p_c T_cj,   T_cj = (1 − ω)/(k − 1) + ω·pairs_cj,  r_c = Σ_j T_cj,

where the pairs are scaled so that r is 1 on average.

The three numbers are those under which the labels are most likely. Labels that contradict a row
that is otherwise clear are noise; those between two classes that overlap are not.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lastlayer.heads.calibration import fit_temperature
from lastlayer.labels.likelihood import LEAST_RIGHT, LIMITS, Array, Likelihood

FEW = 5.0  # wrong labels, of which the likelihood is no parabola
LOGITS = 1 << 20  # that the numbers are fitted to: of more rows, as many as have so many
ROWS, FIRST = 4000, 1 << 17  # rows at least; and logits that say where the search begins
WIDE = 1.96  # deviations: 95 times in 100


@dataclass(frozen=True, eq=False)
class Noise:
    """The fitted model; its numbers as log(τ/τ₀), logit ε and logit ω."""

    numbers: Tensor  # (3,)
    temperature: float  # τ₀
    pairs: Tensor  # (k, k) truth by label; rows add up to 1 on average; the diagonal is 0
    floor: float  # stands for a logit of −∞, from the largest: a class unlikely, not impossible
    own: float = 0.0  # log(τ/τ₀) of a head that is right about itself
    share: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of wrong labels: least, expected, most

    @classmethod
    def fit(
        cls, logits: Tensor, y: Tensor, pairs: Tensor | None = None, own: float = 1.0
    ) -> "Noise":
        """Fit it to the logits (n, k) and labels (n,) of some rows, k at least 2.

        Without ``pairs`` of classes, those of the model are in proportion to how alike these are;
        ``own`` is the temperature of a head that is right about itself.
        """
        k = logits.shape[1]
        rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        rows = rows[: max(LOGITS // k, ROWS)]
        logits, y = logits[rows], y[rows]
        logits = logits - logits.amax(dim=1, keepdim=True)
        floor = 2 * float(logits[logits.isfinite()].min()) - 1
        logits = logits.clamp(min=floor)
        few = max(FIRST // k, 500)
        temperature = fit_temperature(logits[:few], y[:few])
        own = math.log(own / temperature)
        logits = logits / temperature
        if pairs is None:
            pairs = _likeness(torch.softmax(logits[:few], dim=1), y[:few])
        known = pairs.numpy()
        first = Likelihood(logits[:few].numpy(), y[:few].numpy(), known, own=own)
        start = first.overall()
        whole = first if few >= len(y) else Likelihood(logits.numpy(), y.numpy(), known, own=own)
        numbers = whole.best(start)[0]
        share = share_around(whole, numbers)
        return cls(torch.from_numpy(numbers), temperature, pairs, floor, own, share)

    def beside(
        self, logits: Tensor, y: Tensor, votes: Tensor, pairs: Tensor
    ) -> tuple[tuple[float, float, float], float]:
        """Return the share of wrong labels where another judge has a say, and the surprise.

        The logits (n, k) are as it was fitted to, the votes (n, k) those of the other judge.
        """
        scaled = self._scaled(logits).numpy()
        both = Likelihood(scaled, y.numpy(), pairs.numpy(), votes.numpy(), self.own)
        tau, rate, alike = self.numbers.tolist()
        starts = np.array([(tau, rate, alike, -3.0), (tau, -3.0, 0.0, 0.0), (tau, -6.0, 0.0, 0.0)])
        x, at = min((both.best(start) for start in starts), key=lambda found: found[1].surprise)
        return share_around(both, x), at.surprise

    @property
    def rate(self) -> float:
        """The share of labels that are wrong, ε."""
        return float(torch.sigmoid(self.numbers[1]))

    def document(self) -> dict[str, float]:
        """Return the three numbers as they are said."""
        alike = float(torch.sigmoid(self.numbers[2]))
        return {"temperature": self.temperature, "rate": self.rate, "alike": alike}

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return what a row is (n, k), given its logits."""
        return torch.softmax(self._scaled(logits) / torch.exp(self.numbers[0]), dim=1)

    def wrong(self, p: Tensor, y: Tensor) -> Tensor:
        """Return how probable it is (n, k) that labels are wrong and their rows of each class."""
        k = len(self.pairs)
        alike = torch.sigmoid(self.numbers[2])
        any_other = (1 - torch.eye(k, dtype=torch.float64)) / (k - 1)
        kinds = self.rate * ((1 - alike) * any_other + alike * self.pairs)
        right = (1 - kinds.sum(dim=1)).clamp(min=LEAST_RIGHT)
        own = (right[y] * p.gather(1, y[:, None])[:, 0]).clamp(min=1e-300)
        noise = p * kinds.mT[y]
        return noise.div_((own + noise.sum(dim=1))[:, None])

    def mean(self, logits: Tensor, y: Tensor) -> float:
        """Return the share of wrong labels among some rows, as expected."""
        return float(self.wrong(self.probabilities(logits), y).sum() / max(len(y), 1))

    def interval(self, wrong: Tensor) -> tuple[float, float]:
        """Return between which numbers the wrong labels among these rows are, 95 times in 100.

        Both what is drawn, given the three numbers, and what is unknown of these counts.
        """
        n, expected = len(wrong), float(wrong.sum())
        drawn = WIDE**2 * float((wrong * (1 - wrong)).sum())
        least, share, most = self.share
        below, above = (math.sqrt(drawn + (n * (share - end)) ** 2) for end in (least, most))
        return max(expected - below, 0.0), min(expected + above, float(n))

    def _scaled(self, logits: Tensor) -> Tensor:
        below = (logits - logits.amax(dim=1, keepdim=True)).clamp(min=self.floor)
        return below / self.temperature


def share_around(rows: Likelihood, numbers: Array) -> tuple[float, float, float]:
    """Return the share of wrong labels: the least that is likely, the expected, the most."""
    steps = 1e-4 * np.eye(len(numbers))
    ends = [(rows.look(numbers + step), rows.look(numbers - step)) for step in steps]
    curvature = np.stack([(high.slope - low.slope) / 2e-4 for high, low in ends])
    spread = np.linalg.pinv((curvature + curvature.T) / 2, hermitian=True, rcond=1e-9)
    slope = np.array([(high.share - low.share) / 2e-4 for high, low in ends])
    expected = rows.look(numbers).share
    reach = WIDE * math.sqrt(max(float(slope @ spread @ slope), 0.0))
    if reach < expected / 2 and expected * len(rows.y) > FEW:
        return expected - reach, expected, expected + reach
    # So near to none the likelihood is no parabola, and its own reach says more.
    return _reach(rows, numbers, 0), expected, _reach(rows, numbers, 1)


def _reach(rows: Likelihood, numbers: Array, end: int) -> float:
    """Return the share of wrong labels where ε is as small, or as large, as is still likely."""
    start, at = rows.best(numbers)
    best, inside, outside = at.surprise, float(start[1]), LIMITS[1][end]

    def known(rate: float) -> tuple[Array, float, float]:
        x, at = rows.best(np.r_[start[:1], rate, start[2:]], fixed=(1,))
        return x, at.surprise, at.share

    if known(outside)[1] < best + WIDE**2 / 2:
        inside = outside
    for _ in range(8):
        middle = (inside + outside) / 2
        is_likely = known(middle)[1] < best + WIDE**2 / 2
        inside, outside = (middle, outside) if is_likely else (inside, middle)
    return known(inside)[2]


def _likeness(p: Tensor, y: Tensor) -> Tensor:
    """Return how alike classes are (k, k): for what rows of each are taken, where not for it."""
    k = p.shape[1]
    mass = torch.zeros(k, k, dtype=torch.float64).index_add_(0, y, p)
    mass = mass + 1e-12  # a class that is never confused is as likely confused with any other
    mass.fill_diagonal_(0)
    return mass / mass.sum(dim=1, keepdim=True)
