"""Everything that a watch remembers, which is as large after ten million rows as after one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from lastlayer.live.questions import MOVED, Question, Rule
from lastlayer.live.wealth import Wealth

RECENT = 32  # inputs turned away of which it is known where they lie


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
            latest = their if mine.last is None else mine
            questions[name] = replace(
                latest,
                wealth=mine.wealth.joined(their.wealth, weight),
                begun=mine.begun + their.begun,
                alarms=mine.alarms + their.alarms,
            )
        rows = (*self.turned_away, *other.turned_away)[-RECENT:]
        names = questions[MOVED].wealth
        if self._names_apart or other._names_apart:
            names = self.names.joined(other.names, 0.5)
        return type(self)(questions, names, self.outside + other.outside, rows)
