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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.heads.calibration import fit_temperature

# Where the search begins: ε = 5 %, both kinds of wrong labels alike, and τ as without noise or
# smaller. Few wrong labels among clear rows have two explanations, noise or a large τ, of which
# each is the best one nearby.
STARTS = tuple((log_tau, -3.0, 0.0) for log_tau in (0.0, -1.5, -3.0))
FEW = 5.0  # wrong labels, of which the likelihood is no parabola
LEAST_RIGHT = 0.05  # of the labels of a class
LOGITS = 1 << 20  # that the numbers are fitted to: of more rows, as many as have so many
FIRST, SECOND = 800, 4000  # rows that choose among the starts, and the kind of pairs
CLEARLY = 3.0  # by which the log likelihood of pairs that are counted must be better
LIMITS = ((-4.0, 4.0), (-16.0, 2.0), (-6.0, 6.0))
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Noise:
    """The fitted model; its three numbers as log(τ/τ₀), logit ε and logit ω."""

    numbers: Tensor  # (3,)
    temperature: float  # τ₀
    pairs: Tensor  # (k, k) truth by label; rows add up to 1 on average; the diagonal is 0
    floor: float  # stands for a logit of −∞, from the largest: a class unlikely, not impossible
    share: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of wrong labels: least, expected, most

    @classmethod
    def fit(cls, logits: Tensor, y: Tensor) -> "Noise":
        """Fit it to the logits (n, k) and labels (n,) of some rows, k at least 2."""
        rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        rows = rows[: max(LOGITS // logits.shape[1], SECOND)]
        logits, y = logits[rows], y[rows]
        logits = logits - logits.amax(dim=1, keepdim=True)
        floor = 2 * float(logits[logits.isfinite()].min()) - 1
        logits = logits.clamp(min=floor)
        temperature = fit_temperature(logits, y)

        def model(pairs: Tensor) -> "Noise":
            numbers = torch.tensor(STARTS[0], dtype=torch.float64)
            return cls(numbers, temperature, pairs, floor)

        alike = _likeness(torch.softmax(logits / temperature, dim=1), y)
        # Pairs that are counted fit the very labels they are counted from: half of the rows says
        # which there are, and the other half whether that is so.
        one, other = logits.tensor_split(2), y.tensor_split(2)
        counted, there = model(_counted(one[0], other[0]))._start(one[1], other[1])
        expected, start = model(alike)._start(one[1], other[1])
        if counted < expected - CLEARLY:
            alike, start = _counted(logits, y), there
        chosen = model(alike)
        numbers = torch.from_numpy(chosen._minimum(start, logits, y)[1])
        return replace(chosen, numbers=numbers, share=chosen._around(numbers, logits, y))

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
        return self._truth(self.numbers, logits)

    def wrong(self, p: Tensor, y: Tensor) -> Tensor:
        """Return how probable it is (n, k) that a label is wrong and the row of each class.

        Args:
            p: their probabilities (n, k).
            y: their labels (n,).
        """
        own, noise = self._terms(self.numbers, p, y)
        return noise / (own + noise.sum(dim=1))[:, None]

    def interval(self, wrong: Tensor) -> tuple[float, float]:
        """Return between which numbers the wrong labels among these rows are, 95 times in 100.

        Both what is drawn, given the three numbers, and what is unknown of these counts.
        """
        n, expected = len(wrong), float(wrong.sum())
        drawn = 1.96**2 * float((wrong * (1 - wrong)).sum())
        least, share, most = self.share
        below, above = (math.sqrt(drawn + (n * (share - end)) ** 2) for end in (least, most))
        return max(expected - below, 0.0), min(expected + above, float(n))

    def _truth(self, numbers: Tensor, logits: Tensor) -> Tensor:
        below = (logits - logits.amax(dim=1, keepdim=True)).clamp(min=self.floor)
        return torch.softmax(below / (self.temperature * torch.exp(numbers[0])), dim=1)

    def _wrong_labels(self, numbers: Tensor) -> Tensor:
        """Return how probable each wrong label (k, k) is, of a row of each class."""
        k = len(self.pairs)
        alike = torch.sigmoid(numbers[2])
        any_other = (1 - torch.eye(k, dtype=torch.float64, device=numbers.device)) / (k - 1)
        return (1 - alike) * any_other + alike * self.pairs

    def _terms(self, numbers: Tensor, p: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return how probable a right label is (n,), and a wrong one of a row of each class."""
        kinds = torch.sigmoid(numbers[1]) * self._wrong_labels(numbers)
        right = (1 - kinds.sum(dim=1)).clamp(min=LEAST_RIGHT)
        own = right[y] * p.gather(1, y[:, None])[:, 0]
        return own.clamp(min=1e-300), p * kinds.mT[y]

    def _surprise(self, numbers: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """Return −log likelihood; a weak prior settles ω where there is no noise to tell it."""
        own, noise = self._terms(numbers, self._truth(numbers, logits), y)
        alike = numbers[2]
        prior = torch.nn.functional.logsigmoid(alike) + torch.nn.functional.logsigmoid(-alike)
        return -(own + noise.sum(dim=1)).log().sum() - 0.5 * prior

    def _start(self, logits: Tensor, y: Tensor) -> tuple[float, Array]:
        """Return the least surprise of the first rows, and its numbers."""
        few = logits[:FIRST], y[:FIRST]
        found = min((self._minimum(start, *few) for start in STARTS), key=lambda found: found[0])
        return self._minimum(found[1], logits[:SECOND], y[:SECOND])

    def _minimum(
        self, start: Any, logits: Tensor, y: Tensor, rate: float | None = None
    ) -> tuple[float, Array]:
        """Return the least surprise of rows near a start, and its numbers; ε may be given."""
        from scipy.optimize import minimize  # noqa: PLC0415  (15 MB that most never need)

        def look(x: Array) -> tuple[float, Array]:
            numbers = torch.tensor(x, dtype=torch.float64, requires_grad=True)
            with torch.enable_grad():
                found = self._surprise(numbers, logits, y) / len(y)
            (slope,) = torch.autograd.grad(found, numbers)
            return float(found.detach()), slope.numpy()

        limits, start = list(LIMITS), np.array(start, dtype=np.float64)
        if rate is not None:
            start[1], limits[1] = rate, (rate, rate)
        found = minimize(look, start, jac=True, method="L-BFGS-B", bounds=limits)
        return len(y) * float(found.fun), np.asarray(found.x, dtype=np.float64)

    def _around(self, numbers: Tensor, logits: Tensor, y: Tensor) -> tuple[float, float, float]:
        """Return the share of wrong labels: the least that is likely, the expected, the most."""
        step = 1e-4 * torch.eye(3, dtype=torch.float64)
        ends = [(self._slope(numbers + s, logits, y), self._slope(numbers - s, logits, y))
                for s in step]  # fmt: skip
        curvature = torch.stack([(high - low) / 2e-4 for high, low in ends])
        spread = torch.linalg.pinv((curvature + curvature.mT) / 2, hermitian=True, rtol=1e-9)
        at = numbers.clone().requires_grad_(True)
        with torch.enable_grad():
            share = self._share(at, logits, y)
        (slope,) = torch.autograd.grad(share, at)
        expected = float(share.detach())
        reach = 1.96 * math.sqrt(max(float(slope @ spread @ slope), 0.0))
        if reach < expected / 2 and expected * len(y) > FEW:
            return expected - reach, expected, expected + reach
        # So near to none the likelihood is no parabola, and its own reach says more.
        return self._reach(numbers, logits, y, -1), expected, self._reach(numbers, logits, y, 1)

    def _reach(self, numbers: Tensor, logits: Tensor, y: Tensor, sign: int) -> float:
        """Return the share of wrong labels where ε is as large, or small, as is still likely."""
        best, start = self._minimum(numbers.numpy(), logits, y)
        inside, outside = float(start[1]), LIMITS[1][0 if sign < 0 else 1]

        def is_likely(rate: float) -> bool:
            return self._minimum(start, logits, y, rate)[0] < best + 1.92

        if is_likely(outside):
            inside = outside
        for _ in range(8):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if is_likely(middle) else (inside, middle)
        at = torch.from_numpy(self._minimum(start, logits, y, inside)[1])
        return float(self._share(at, logits, y))

    def _slope(self, numbers: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        at = numbers.clone().requires_grad_(True)
        with torch.enable_grad():
            (found,) = torch.autograd.grad(self._surprise(at, logits, y), at)
        return found

    def _share(self, numbers: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        own, noise = self._terms(numbers, self._truth(numbers, logits), y)
        return (noise.sum(dim=1) / (own + noise.sum(dim=1))).mean()


def _likeness(p: Tensor, y: Tensor) -> Tensor:
    """Return how alike classes are (k, k): for what rows of each are taken, where not for it."""
    k = p.shape[1]
    mass = torch.zeros(k, k, dtype=torch.float64, device=p.device).index_add_(0, y, p)
    mass = mass + 1e-12  # a class that is never confused is as likely confused with any other
    mass.fill_diagonal_(0)
    return mass / mass.sum(dim=1, keepdim=True)


def _counted(logits: Tensor, y: Tensor) -> Tensor:
    """Return how often rows that are answered with each class have each other label (k, k)."""
    k = logits.shape[1]
    answers = logits.argmax(dim=1)
    often = (answers * k + y).bincount(minlength=k * k).double().view(k, k) + 1 / k**2
    often.fill_diagonal_(0)
    rows = answers.bincount(minlength=k).double().clamp(min=1)
    return often / rows[:, None] * (rows.sum() / often.sum())
