"""Calibration: a temperature for probabilities, and limits of novelty that few known inputs pass.

Both come from rows that the head has not learned, and neither keeps a row: one number divides the
logits, and the largest novelties of those rows, at most 2,000 of them, give a limit for each share
of known inputs that one is ready to turn away (split conformal prediction). Sums over the rows, by
class, are what a watch compares a stream with. A calibration that lives follows its stream.
"""

import math
import warnings
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import flag, real
from lastlayer.core.names import first_few, listed
from lastlayer.core.tensors import check_label_kind, check_range, ends
from lastlayer.errors import (
    CalibrationWarning,
    DataError,
    FileFormatError,
    LabelError,
    NotCalibratedError,
    OptionError,
)
from lastlayer.heads.answering import make_ready, pieces, ready, renew
from lastlayer.heads.class_names import called
from lastlayer.heads.living import USUAL, Living
from lastlayer.heads.watch_reference import Reference, ahead

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

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
    living: Living | None = None  # follows the stream, in place of being out of date
    reference: dict[str, Any] | None = None  # of a watch; see ``Reference``

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
        if self.living is not None:
            found = self.living.limit(share)
            if found is None:
                shares = ", ".join(map(str, USUAL))
                raise OptionError(
                    f"a calibration that lives follows the shares {shares}, got {share}"
                )
            return found
        passing = math.floor((self.rows + 1) * Fraction(repr(share)))
        if passing < 1:
            raise OptionError(
                f"a share of {share} needs at least {math.ceil(1 / Fraction(repr(share))) - 1} "
                f"calibration rows, got {self.rows}: calibrate with more of them, or ask for a "
                f"share of at least 1/{self.rows + 1}"
            )
        return self.ranked(passing)[1]

    def ranked(self, passing: int) -> tuple[int, float]:
        """Return the rank of a limit that at most so many of the rows reach, and the limit."""
        place = max(bisect_right(self.ranks, passing) - 1, 0)
        return self.ranks[place], self.novelty[place]

    def usual_limits(self) -> dict[str, float]:
        """Return the limits of the usual shares, as far as there are enough rows for them."""
        limits = {s: self.limit(s) for s in USUAL if self.living or s * (self.rows + 1) >= 1}
        return {str(share): limit for share, limit in limits.items() if math.isfinite(limit)}

    def follow(self, head: "Head", z: Tensor, y: Tensor) -> Self:
        """Return what it is after rows that a head is about to learn, as part of that change."""
        known = y < head.n_classes
        known = known & head.seen[torch.where(known, y, 0)] if head.n_classes else known
        if self.living is None or not bool(known.any()):
            return self
        renew(head)
        living, temperature = self.living, self.temperature
        for part, own in zip(pieces(head, z[known]), pieces(head, y[known]), strict=True):
            logits, novelty = head._judge(part)
            living, temperature = living.follow(temperature, novelty, head._evidence(logits), own)
        return replace(self, living=living, temperature=temperature)

    def after_forgetting(self) -> Self:
        """Return what it is once its head has forgotten: out of date, or marked where it lives."""
        if self.living is None:
            return replace(self, stale=True)
        return replace(self, living=replace(self.living, forgot=True))

    def document(self) -> dict[str, Any]:
        """Return it as the file of a head keeps it."""
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read what ``document`` returned; refuse what it cannot have returned."""
        try:
            living = document.get("living")
            found = cls(**{**document, "ranks": tuple(document["ranks"]),
                           "novelty": tuple(map(float, document["novelty"])),
                           "temperature": real(document["temperature"], "temperature"),
                           "living": None if living is None else _living(living)})  # fmt: skip
            found._check()
            if found.reference is not None:
                Reference.read(found.reference)
        except (KeyError, TypeError, ValueError) as error:
            names = ", ".join(field.name for field in fields(cls))
            raise FileFormatError(f"a calibration must have {names}: {error}") from error
        return found

    def _check(self) -> None:
        ranks, novelty = np.array(self.ranks), np.array(self.novelty, dtype=np.float64)
        right = (
            type(self.rows) is int
            and type(self.stale) is bool
            and (self.reference is None or isinstance(self.reference, dict))
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


def _living(document: Mapping[str, Any]) -> Living:
    """Read what follows the stream, from the file of a head."""
    recent, levels = (tuple(map(float, document[name])) for name in ("recent", "levels"))
    found = Living(**{**document, "recent": recent, "levels": levels})
    numbers = (*recent, *levels, found.slope, found.curvature, found.known)
    if not recent or len(levels) != len(USUAL) or not np.isfinite(numbers).all():
        raise ValueError("what lives must have novelties, levels and finite numbers")
    return found


def calibrate(head: "Head", z: Tensor, y: Tensor, living: bool = False) -> None:
    """Calibrate a head on features (n, h) of classes that it has learned, but on other rows.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> head = ll.make_head("slda", in_features=64)
    >>> head.observe(data.train.z, data.train.y)
    >>> head.calibrate(data.test.z[:5000], data.test.y[:5000])
    >>> answers = head.predict(data.test.z[5000:], unknown=0.05)
    >>> round((answers == -1).double().mean().item(), 3)
    0.046
    """
    flag(living, "living")
    with head.lock:
        head.calibration = _calibrated(head, ready(head, z), y, living)


def _calibrated(head: "Head", z: Tensor, y: Tensor, living: bool) -> Calibration:
    """Measure on checked features what a head, whose lock is held, is to know about itself."""
    check_label_kind(y, len(z))
    if not len(z):
        raise DataError("calibration needs rows, got none")
    y = y.to(device=head.seen.device, dtype=torch.int64)
    new = _check_rows(head, z, y)
    z, y = z[new], y[new]
    fitted = rows_for_temperature(len(z), head.n_classes).to(head.seen.device)
    wanted = torch.zeros(len(z), dtype=torch.bool, device=head.seen.device)
    wanted[fitted] = True
    novelty, evidence, wrong, far, start = [], [], [], [], 0
    for part in pieces(head, z):
        logits, strange = head._judge(part)
        own = y[start : start + len(part)]
        novelty.append(strange)
        wrong.append(logits.argmax(dim=-1) != own)
        far.append(ahead(logits, own))
        evidence.append(head._evidence(logits)[wanted[start : start + len(part)]])
        start += len(part)
    temperature, strange = fit_temperature(torch.cat(evidence), y[fitted]), torch.cat(novelty)
    found = Calibration.of(temperature, strange)
    far_ahead = np.concatenate(far)
    reference = Reference.of(z, y, strange, torch.cat(wrong), far_ahead, head.n_classes)
    lives = Living.of(strange) if living else None
    return replace(found, living=lives, reference=reference.document())


def _check_rows(head: "Head", z: Tensor, y: Tensor) -> Tensor:
    """Return which rows are new (n,); refuse classes not learned, and a class without new rows."""
    check_range(*ends(y))
    strange = y[(y >= head.n_classes) | ~head.seen[y.clamp(max=head.n_classes - 1)]]
    if len(strange):
        raise LabelError(
            "calibration rows must be of classes that the head has learned, got "
            f"{called(head, int(strange[0]))}"
        )
    new = ~head._keeps(z)
    if not new.any():
        raise DataError(
            "calibration rows must be new to the head, but it keeps all of these: hold rows out "
            "before it learns"
        )
    missing = (head.seen & (y[new].bincount(minlength=head.n_classes) == 0)).nonzero().flatten()
    if len(missing):
        few = first_few([called(head, c) for c in missing.tolist()])
        raise DataError(
            "every class that the head has learned needs calibration rows, but there are none of "
            f"{few}" + ("" if new.all() else ", beside rows that the head keeps")
        )
    if not new.all():
        rows = listed([str(row) for row in (~new).nonzero().flatten().tolist()], 10)
        warnings.warn(
            f"{int((~new).sum())} of {len(z)} calibration rows are among those that the head "
            f"keeps, so they are left out: rows {rows}",
            CalibrationWarning,
            stacklevel=4,
        )
    return new


def warn_if_stale(head: "Head") -> None:
    """Warn if probabilities are by the temperature that a head had before it changed."""
    if head.calibration is not None and head.calibration.stale:
        warnings.warn(
            f"this '{head.name}' head has changed since it was calibrated: its probabilities may "
            "be too high or too low; call calibrate(z, y) with rows that it has not learned "
            "(in the shell: lastlayer calibrate)",
            CalibrationWarning,
            stacklevel=3,
        )


def up_to_date(head: "Head") -> Calibration:
    """Return the calibration of a head; refuse one that is missing or out of date."""
    found = head.calibration
    if found is None or found.stale:
        why = "is not calibrated" if found is None else "has changed since it was calibrated"
        raise NotCalibratedError(
            f"this '{head.name}' head {why}: call calibrate(z, y) with rows that it has not "
            "learned (in the shell: lastlayer calibrate)"
            + ("" if found is None else ", or drop the calibration: calibration = None")
        )
    return found


def follow(head: "Head", z: Tensor, y: Tensor) -> bool:
    """Let a calibration that lives see rows that its head is about to learn, if there is one."""
    found = head.calibration
    if found is None or found.living is None:
        return False
    if head._follows:
        head.calibration = found.follow(head, z, y)
    return True


def temperature(head: "Head") -> float:
    """Return what the logits of a head are divided by to become probabilities."""
    with head.lock:
        if head.calibration is None:
            make_ready(head)
            return head._own_temperature()
        return head.calibration.temperature


def a_share(share: Any, name: str) -> float:
    """Return a share of rows: a number above 0 and below 1.

    >>> a_share(5, "unknown")
    Traceback (most recent call last):
    ...
    lastlayer.errors.OptionError: unknown must be a share above 0 and below 1, got 5
    """
    number = real(share, name)
    if not 0 < number < 1:
        raise OptionError(f"{name} must be a share above 0 and below 1, got {share}")
    return number


def rows_for_temperature(n: int, n_classes: int) -> Tensor:
    """Choose the rows that a temperature is fitted to: all n of them, unless that is too much."""
    most = max(_LOGITS // max(n_classes, 1), 1)
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].sort().values


def fit_temperature(logits: Tensor, y: Tensor) -> float:
    """Return the temperature whose probabilities have the least log loss on rows not learned.

    Targets are smoothed by the weight of one row in n + 2, so that rows that are all answered
    rightly do not make every answer certain. Where nothing can be told, it is 1. A column of the
    logits (n, n_classes) without any finite number takes no part; those of the classes y (n,) do.
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
