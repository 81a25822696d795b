"""When it is an alarm, and what a watch remembers until then."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Self

import numpy as np

from lastlayer.live.watch.betting import Array
from lastlayer.live.watch.rules import MOVED, RECENT, Rule
from lastlayer.live.watch.wealth import Wealth

POINTS = 64  # of the course of the wealth that are kept for a page


@dataclass(frozen=True, eq=False)
class Question:
    """What is remembered of one question; a fixed number of numbers, however long it is asked."""

    wealth: Wealth
    rows: int = 0  # that it was asked about
    begun: int = 0  # of them before the present bets began
    hits: float = 0.0  # of all rows: wrong answers, or inputs beyond the limit
    alarms: int = 0  # so far
    last: dict[str, Any] | None = None  # the last alarm
    points: tuple[tuple[int, float], ...] = ()  # rows, and the logarithm of the wealth then
    stride: int = 1  # rows between two points

    def after(self, wealth: Wealth, x: Array) -> Self:
        """Return it after rows (n, d) that were bet on, which have led to this wealth."""
        hits = self.hits + float(x[:, 0].sum())
        return replace(self, wealth=wealth, rows=self.rows + len(x), hits=hits)

    def noted(self, evidence: float) -> Self:
        """Return it with one more point of its course, or with every second of too many."""
        points, stride = self.points, self.stride
        if not points or self.rows >= points[-1][0] + stride:
            points = (*points, (self.rows, float(np.log10(max(evidence, 1e-30)))))
        if len(points) > POINTS:
            points, stride = points[::2], 2 * stride
        return replace(self, points=points, stride=stride)

    def age(self) -> float:
        """Return how many rows ago it last said yes; ∞: never."""
        return inf if self.last is None else self.rows - self.last["again"]

    def document(self) -> dict[str, Any]:
        """Return it as the file of a head keeps it."""
        return {**self.__dict__, "wealth": self.wealth.document, "points": list(self.points)}

    @classmethod
    def read(cls, document: Mapping[str, Any], share: Array) -> Self:
        """Read what ``document`` returned; an error where it cannot have."""
        points = tuple((int(row), float(height)) for row, height in document["points"])
        for name in ("rows", "begun", "alarms", "stride"):
            if type(document[name]) is not int:
                raise ValueError(f"{name} must be a whole number")
        float(document["hits"])
        wealth = Wealth.read(document["wealth"], share)
        return cls(**{**document, "wealth": wealth, "points": points})


def until_alarm(
    wealth: Wealth, rule: Rule, x: Array, group: Array | None, *, never: bool = False
) -> tuple[Wealth, int | None]:
    """Bet on rows up to the first that makes the wealth of all groups enough for an alarm.

    Return what is remembered then, and how many rows that took; None: there is no alarm, as there
    is ``never`` any once a promise is spent.
    """
    made, together = rule.take(wealth, x, group)
    over = (together >= rule.promise.enough).nonzero()[0]
    if never or not len(over):
        return made, None
    n = int(over[0]) + 1
    return rule.take(wealth, x[:n], None if group is None else group[:n])[0], n


@dataclass(frozen=True, eq=False)
class State:
    """What a watch remembers; replaced as a whole, or not at all."""

    questions: dict[str, Question]
    names: Wealth  # of the classes, never begun anew, to name them by
    outside: int = 0  # labelled rows of classes that were not calibrated
    turned_away: tuple[tuple[float, ...], ...] = ()  # where the latest lie along the directions

    def document(self) -> dict[str, Any]:
        """Return it as the file of a head keeps it."""
        return {
            "questions": {name: question.document() for name, question in self.questions.items()},
            "names": self.names.document if self._names_apart else None,
            "outside": self.outside,
            "turned_away": [list(row) for row in self.turned_away],
        }

    @property
    def _names_apart(self) -> bool:
        return self.names is not self.questions[MOVED].wealth

    @classmethod
    def read(cls, document: Mapping[str, Any], rules: Mapping[str, Rule], classes: int) -> Self:
        """Read what ``document`` returned, with room for so many classes; an error if it cannot."""
        questions = {
            name: Question.read(document["questions"][name], rule.share)
            for name, rule in rules.items()
        }
        names = questions[MOVED].wealth.grown(classes)
        questions[MOVED] = replace(questions[MOVED], wealth=names)
        if document["names"] is not None:
            names = Wealth.read(document["names"], rules[MOVED].share).grown(classes)
        rows = tuple(tuple(map(float, row)) for row in document["turned_away"])
        return cls(questions, names, int(document["outside"]), rows)

    def joined(self, other: Self, weight: float) -> Self:
        """Return what two watches of different rows remember together."""
        questions = {}
        for name, mine in self.questions.items():
            their = other.questions[name]
            n = mine.rows + their.rows
            latest = min(mine, their, key=Question.age)
            last = latest.last and {**latest.last, "again": n - int(latest.age())}
            questions[name] = replace(
                latest,
                last=last,
                wealth=mine.wealth.joined(their.wealth, weight),
                rows=n,
                begun=mine.begun + their.begun,
                hits=mine.hits + their.hits,
                alarms=mine.alarms + their.alarms,
            )
        rows = (*self.turned_away, *other.turned_away)[-RECENT:]
        names = questions[MOVED].wealth
        if self._names_apart or other._names_apart:
            names = self.names.joined(other.names, 0.5)
        return type(self)(questions, names, self.outside + other.outside, rows)
