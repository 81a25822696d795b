"""A calibration that follows its stream: limits of novelty and a temperature, row by row.

Adaptive conformal inference (Gibbs and Candès 2021): each labelled row of a learned class, judged
before it is learned, is turned away or not at the level in force; the level then falls a little if
it was, and rises less if it was not. Whatever the stream does, the share α of T such rows that is
turned away differs from the one asked for by at most (max(α, 1 − α) + γ)/(γ T). That needs feedback
on every row: labels of nothing but what was turned away break it. The temperature takes Newton
steps on the log loss, and nothing is promised of it.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

USUAL = (0.01, 0.05, 0.1)  # shares of known inputs that one is ready to turn away
GAIN = 0.005  # γ: what a level changes by when a row is turned away
RECENT = 1000  # novelties among which the limit of a level is looked up
BLOCK = 64  # rows of a step of the temperature
MEMORY = 16  # blocks after which what they said of the temperature has faded
STEP = 0.2  # of the logarithm of the temperature, at most


@dataclass(frozen=True)
class Living:
    """What follows the stream; it depends on the order of its rows, and never on their batches."""

    recent: tuple[float, ...]  # novelties of the latest rows, the oldest first
    levels: tuple[float, ...] = USUAL  # that are in force for the usual shares
    rows: int = 0  # that were fed back
    slope: float = 0.0  # of the log loss of an unfinished block, by the log of 1/temperature
    curvature: float = 0.0  # of the same
    known: float = 0.0  # the curvature of earlier blocks, faded
    forgot: bool = False  # whether the head forgot rows that may have left a trace here

    @classmethod
    def of(cls, novelty: Tensor) -> Self:
        """Begin with some of the novelties (n,) of a calibration, in a random order."""
        order = torch.randperm(len(novelty), generator=torch.Generator().manual_seed(0))
        return cls(tuple(novelty[order[:RECENT].to(novelty.device)].double().tolist()))

    def limit(self, share: float) -> float | None:
        """Return the limit in force for a usual share, ∞ where nothing is turned away.

        None: it is none of the usual shares.
        """
        if share not in USUAL:
            return None
        enough = self._enough(self.levels[USUAL.index(share)], len(self.recent))
        if not 1 <= enough <= len(self.recent):
            return float("inf") if enough < 1 else float("-inf")
        return sorted(self.recent)[-enough]

    def follow(
        self, temperature: float, novelty: Tensor, evidence: Tensor, y: Tensor
    ) -> tuple[Self, float]:
        """Return what it is after some rows (n,) of classes y, and the temperature then.

        ``evidence`` (n, n_classes) is what probabilities are the softmax of, after the temperature.
        """
        made = self._turn_away(novelty.double().tolist())
        begin, wait = 0, self.rows % BLOCK
        while begin < len(y):
            end = min(len(y), begin + BLOCK - wait)
            slope, curvature = _of_log_loss(evidence[begin:end], y[begin:end], 1 / temperature)
            slope, curvature = made.slope + slope, made.curvature + curvature
            wait, begin = (wait + end - begin) % BLOCK, end
            known = made.known
            if not wait:
                # The first block counts as if all that are remembered had said the same.
                known = known * (1 - 1 / MEMORY) + curvature if known else curvature * MEMORY
                step = max(-STEP, min(STEP, slope / known)) if known > 0 else 0.0
                temperature *= float(torch.tensor(step, dtype=torch.float64).exp())
                slope = curvature = 0.0
            made = replace(made, slope=slope, curvature=curvature, known=known)
        return replace(made, rows=self.rows + len(y)), temperature

    def _turn_away(self, novelty: list[float]) -> Self:
        """Judge rows one after the other, and let the levels follow."""
        recent, levels = list(self.recent), list(self.levels)
        ordered, size = sorted(recent), max(min(len(recent), RECENT), 1)
        for strange in novelty:
            as_strange = len(ordered) - bisect_left(ordered, strange)
            for place, share in enumerate(USUAL):
                turned_away = as_strange < self._enough(levels[place], len(ordered))
                levels[place] += GAIN * (share - turned_away)
            recent.append(strange)
            insort(ordered, strange)
            if size < len(ordered):
                del ordered[bisect_left(ordered, recent[-1 - size])]
        return replace(self, recent=tuple(recent[-size:]), levels=tuple(levels))

    @staticmethod
    def _enough(level: float, n: int) -> int:
        """Return the rank of the limit of a level: the largest novelty has rank 1."""
        return int((n + 1) * level // 1)


def _of_log_loss(evidence: Tensor, y: Tensor, steepness: float) -> tuple[float, float]:
    """Return slope and curvature of the log loss, summed over rows, by the log of steepness."""
    possible = evidence > -1e300 if evidence.dtype == torch.float64 else evidence > -1e30
    scores = torch.where(possible, evidence, -torch.inf).double() * steepness
    share = torch.softmax(scores, dim=1)
    scores = scores.masked_fill(~possible, 0)
    mean = (share * scores).sum(dim=1)
    own = scores.gather(1, y[:, None])[:, 0]
    says = possible.gather(1, y[:, None])[:, 0]  # a class that is impossible says nothing of it
    slope = torch.where(says, mean - own, 0).sum()
    curvature = torch.where(says, (share * (scores - mean[:, None]) ** 2).sum(dim=1), 0).sum()
    return float(slope), float(curvature)
