"""What a watch compares a stream with: what it bets on of each row, and against what."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from torch import Tensor

from lastlayer.core.tensors import check_label_kind, check_range, ends
from lastlayer.errors import ArgumentError, NotCalibratedError
from lastlayer.heads import Head
from lastlayer.heads.watch_reference import Reference, ahead, along, projected
from lastlayer.live.watch.betting import Array, at_most
from lastlayer.live.watch.promise import promise_of
from lastlayer.live.watch.rules import (
    ERRORS,
    MOVED,
    RECENT,
    STRANGE,
    WORSE,
    Rule,
    badness,
    moved,
    strange,
    strangeness,
    worse,
)

FALSE_NAMES = 0.05  # of the classes that are named, at most, on average
Bets = tuple[Array, Array | None]  # (n, d) what is bet on, and the classes (n,) of the rows


@dataclass(frozen=True, eq=False)
class Judged:
    """Rows that a head has judged."""

    u: Array  # (n, DIRECTIONS) where they are along the directions
    novelty: Array  # (n,)
    own: Array | None = None  # (n,) their classes
    wrong: Array | None = None  # (n,) whether the answer was
    far: Array | None = None  # (n,) how far another class is ahead; NaN: not known
    strange: bool = True  # whether they are new, so that it is asked whether they are strange

    @classmethod
    def of(
        cls, z: Tensor, logits: Tensor, novelty: Tensor, y: Tensor | None, answered: Tensor | None
    ) -> Self:
        """Check labels and earlier answers, and score what a head says of features z (n, h)."""
        for labels in (y, answered):
            if labels is not None:
                check_label_kind(labels, len(z))
                if len(labels):
                    check_range(*ends(labels))
        u, strangeness_of = projected(z), novelty.cpu().numpy()
        if y is None:
            if answered is not None:
                raise ArgumentError("answers are scored by labels: pass y as well as answered")
            return cls(u, strangeness_of)
        given = logits.argmax(dim=-1) if answered is None else answered
        own, wrong = y.cpu().numpy().astype(np.int64), (given.cpu() != y.cpu()).numpy()
        far = np.full(len(own), np.nan)
        there = (y < logits.shape[1]) & (answered is None)  # others' logits are unknown
        far[there.cpu().numpy()] = ahead(logits[there], y[there])
        return cls(u, strangeness_of, own, wrong, far, answered is None)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The rules of the questions, from the calibration of a head and what was asked for."""

    name: str  # of the calibration
    about: Reference
    limit: float  # of novelty
    rules: dict[str, Rule]
    naming: Rule  # by which classes are named

    @classmethod
    def of(cls, head: Head, settings: dict[str, Any], calibrations: int) -> Self:
        """Return what the stream of a head is compared with; refuse a head without calibration."""
        found = head.calibration
        if found is None or found.reference is None:
            why = "is not calibrated" if found is None else "was calibrated by an older version"
            raise NotCalibratedError(
                f"this '{head.name}' head {why}, so there is nothing to compare its stream with: "
                "call calibrate(z, y) with rows that it has not learned (in the shell: lastlayer "
                "calibrate)"
            )
        about, promise = Reference.read(found.reference), promise_of(settings, calibrations)
        # Names may be false for two reasons, and a fifth of their share is for the calibration.
        of_classes = replace(promise, delta=min(promise.delta, 0.1 * FALSE_NAMES))
        ever = settings["rows"] is None
        by_class = partial(moved, about=about)
        rule, limit = strange(promise, found, about)
        rules = {
            WORSE: worse(promise, found, about, settings["tolerance"]),
            STRANGE: rule,
            MOVED: by_class(of_classes, shares=ever),
        }
        names = replace(at_most(FALSE_NAMES), delta=of_classes.delta)
        naming = rules[MOVED] if ever else by_class(names, shares=True)
        return cls(name_of_calibration(head), about, limit, rules, naming)

    def in_force(self, name: str, head: Head) -> Rule:
        """Return the rule of a question as it is now.

        A head that learns by the order of its rows errs now in one class, now in another.
        """
        rule = self.rules[name]
        if name == MOVED and has_changed(head) and not head.abilities.order_free:
            p = rule.p.copy()
            p[:, ERRORS] = np.inf
            return replace(rule, p=p)
        return rule

    def bets(self, rows: Judged) -> dict[str, Bets]:
        """Return what is bet on of rows for each question; labels of new classes are left out."""
        found: dict[str, Bets] = {}
        if rows.strange:
            found[STRANGE] = strangeness(self.about, rows.novelty, self.limit), None
        if rows.own is None or rows.wrong is None or rows.far is None:
            return found
        known = rows.own < len(self.about.rows)
        known &= self.about.rows[np.where(known, rows.own, 0)] > 0
        own, wrong, novelty = rows.own[known], rows.wrong[known], rows.novelty[known]
        found[WORSE] = badness(self.about, wrong, rows.far[known]), None
        seen = along(rows.u[known], self.about.place[own], self.about.scale)
        rates = np.stack([novelty > self.about.limit[own], wrong], axis=1)
        found[MOVED] = np.concatenate([rates, seen, 1 - seen], axis=1), own
        return found

    def away(self, rows: Judged) -> list[tuple[float, ...]]:
        """Return where the last rows turned away lie, in deviations within classes."""
        beyond = rows.u[rows.novelty > self.limit][-RECENT:] if rows.strange else rows.u[:0]
        return [tuple(row) for row in (beyond / self.about.scale).tolist()]


def has_changed(head: Head) -> bool:
    """Return whether a head has learned or forgotten since it was calibrated."""
    found = head.calibration
    return found is not None and (
        found.stale or (found.living is not None and found.living.rows > 0)
    )


def name_of_calibration(head: Head) -> str:
    """Return a name for the calibration that a head is compared with."""
    found = head.calibration
    if found is None:
        return ""
    parts = [found.rows, found.ranks, found.novelty, found.reference]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
