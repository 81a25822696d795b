"""Calibration: a temperature for probabilities, and limits of novelty that few known inputs pass.

Both come from rows that the head has not learned, and neither keeps a row: one number divides the
logits, and the largest novelties of those rows, at most 2,000 of them, give a limit for each share
of known inputs that one is ready to turn away (split conformal prediction).
"""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from lastlayer.arguments import real
from lastlayer.errors import FileFormatError, OptionError

USUAL = (0.01, 0.05, 0.1)  # shares of known inputs that one is ready to turn away
_RANKS = 1000  # largest novelties that are all kept; of the others one in each thousandth
_LOGITS = 1 << 22  # that a temperature is fitted to: more rows would not change it
_FLATTEST, _STEEPEST = 1e-4, 1e6  # of what logits are multiplied by, beside their own scale


@dataclass(frozen=True)
class Calibration:
    """What a head knows about itself from rows that it had not learned."""

    temperature: float  # what logits are divided by before they become probabilities
    rows: int  # how many rows it comes from
    ranks: tuple[int, ...]  # 1: the largest novelty; ascending
    novelty: tuple[float, ...]  # of the rows of these ranks; descending
    stale: bool = False  # the head has changed since

    @classmethod
    def of(cls, temperature: float, novelty: Tensor) -> Self:
        """Make a calibration from a temperature and the novelty (n,) of every row."""
        n = novelty.numel()
        ranks = {*range(1, min(n, _RANKS) + 1), *((n + 1) * j // 1000 for j in range(1, 1000))}
        kept = sorted(ranks - {0})
        falling = novelty.double().sort(descending=True).values.tolist()
        return cls(temperature, n, tuple(kept), tuple(falling[rank - 1] for rank in kept))

    def limit(self, share: float) -> float:
        """Return the novelty above which an input is turned away, so that few known ones are.

        Of n rows that are like the inputs to come, the m = ⌊(n + 1) · share⌋-th largest novelty is
        passed by a new one with probability m/(n + 1), which is at most the share.

        >>> Calibration.of(1.0, torch.arange(99.0)).limit(0.05)
        94.0
        """
        share = a_share(share, "unknown")
        passing = math.floor((self.rows + 1) * Fraction(repr(share)))
        if passing < 1:
            raise OptionError(
                f"a share of {share} needs at least {math.ceil(1 / Fraction(repr(share))) - 1} "
                f"calibration rows, got {self.rows}: calibrate with more of them, or ask for a "
                f"share of at least 1/{self.rows + 1}"
            )
        return self.novelty[bisect_right(self.ranks, passing) - 1]

    def usual_limits(self) -> dict[str, float]:
        """Return the limits of the usual shares, as far as there are enough rows for them."""
        return {str(share): self.limit(share) for share in USUAL if share * (self.rows + 1) >= 1}

    def document(self) -> dict[str, Any]:
        """Return it as the file of a head keeps it."""
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read what ``document`` returned; refuse what it cannot have returned."""
        try:
            found = cls(**{**document, "ranks": tuple(document["ranks"]),
                           "novelty": tuple(document["novelty"])})  # fmt: skip
            found._check()
        except (KeyError, TypeError, ValueError) as error:
            names = ", ".join(field.name for field in fields(cls))
            raise FileFormatError(f"expected a calibration with {names}: {error}") from error
        return found

    def _check(self) -> None:
        ranks, novelty = np.array(self.ranks), np.array(self.novelty, dtype=np.float64)
        right = (
            type(self.rows) is int
            and type(self.stale) is bool
            and real(self.temperature, "temperature") > 0
            and ranks.dtype.kind == "i"
            and 0 < len(ranks) == len(novelty)
            and ranks[0] == 1
            and ranks[-1] <= self.rows
            and bool((np.diff(ranks) > 0).all())
            and bool(np.isfinite(novelty).all())
            and bool((np.diff(novelty) <= 0).all())
        )
        if not right:
            raise ValueError("its numbers do not fit together")


def a_share(share: Any, name: str) -> float:
    """Return a share of rows: a number above 0 and below 1.

    >>> a_share(5, "unknown")
    Traceback (most recent call last):
    ...
    lastlayer.errors.OptionError: expected a share above 0 and below 1 as unknown, got 5
    """
    number = real(share, name)
    if not 0 < number < 1:
        raise OptionError(f"expected a share above 0 and below 1 as {name}, got {share}")
    return number


def rows_for_temperature(n: int, n_classes: int) -> Tensor:
    """Choose the rows that a temperature is fitted to: all n of them, unless that is too much."""
    most = max(_LOGITS // max(n_classes, 1), 1)
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].sort().values


def fit_temperature(logits: Tensor, y: Tensor) -> float:
    """Return the temperature whose probabilities have the least log loss on rows not learned.

    Targets are smoothed by the weight of one row in n + 2, so that rows that are all answered
    rightly do not make every answer certain. Where nothing can be told, it is 1.

    Args:
        logits: (n, n_classes); a column without any finite number takes no part.
        y: (n,) classes whose columns take part.
    """
    takes_part = (logits > -torch.inf).any(dim=0)
    place = (takes_part.cumsum(0) - 1)[y]
    logits = logits[:, takes_part].double().nan_to_num()
    logits = logits - logits.amax(dim=1, keepdim=True)
    lowest = float(logits.masked_fill(logits <= torch.finfo(torch.float64).min / 2, 0).min())
    logits = logits.clamp(min=2 * lowest - 1)  # a class without a vote is unlikely, not impossible
    scale = float(-logits.mean())
    if logits.shape[1] < 2 or not scale > 0:
        return 1.0
    logits = logits / scale
    smooth = 1 / (len(y) + 2)
    own = logits.gather(1, place[:, None]).mean()
    target = float((1 - smooth) * own + smooth * logits.mean())

    def slope(log_steepness: float) -> float:
        share = torch.softmax(logits * math.exp(log_steepness), dim=1)
        return float((share * logits).sum(dim=1).mean()) - target

    ends = math.log(_FLATTEST), math.log(_STEEPEST)
    if slope(ends[0]) >= 0:  # the logits say nothing of the class
        return scale / _FLATTEST
    if slope(ends[1]) <= 0:
        return scale / _STEEPEST
    from scipy.optimize import brentq  # noqa: PLC0415  (15 MB that most processes never need)

    return scale / math.exp(brentq(slope, *ends, xtol=1e-9))
