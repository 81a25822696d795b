"""Watch a head: is it getting worse, are its inputs strange, which class moved.

Each question bets against "nothing has changed since the calibration" (``betting``), so that the
rate of false alarms is the one asked for at every moment, however long one watches.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from torch import Tensor

from lastlayer.core.checks import a_path, expect
from lastlayer.data.rows import Rows
from lastlayer.errors import (
    ArgumentError,
    FileFormatError,
    MergeError,
    NotCalibratedError,
    OptionError,
)
from lastlayer.estimator import HeadClassifier
from lastlayer.heads import Head
from lastlayer.heads.class_names import called
from lastlayer.live.watch import verdicts
from lastlayer.live.watch.alarm import Question, State, until_alarm
from lastlayer.live.watch.betting import Array, named
from lastlayer.live.watch.compared import (
    FALSE_NAMES,
    Comparison,
    Judged,
    has_changed,
    name_of_calibration,
)
from lastlayer.live.watch.promise import DEFAULT, asked_for, in_words, promised
from lastlayer.live.watch.rules import MOVED, QUESTIONS, RECENT, STRANGE, Rule
from lastlayer.live.watch.verdicts import Finding, Report, Verdict
from lastlayer.live.watch.wealth import Wealth

FEW = 200  # calibration rows, of which it says that they are few
LOOK_AHEAD = 64  # rows after an alarm in which to look for the next


@dataclass(frozen=True)
class Alarm:
    """One question that was answered with yes just now."""

    question: str
    row: int  # of this question, from 1
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as text."""
        asked = verdicts.ASKS[self.question]
        return " ".join([asked, f"YES, noticed at row {self.row:,}.", *self.sentences])


class Watch:
    """Watch a calibrated head, with a stated rate of false alarms.

    Three questions: is the head getting worse, are its inputs strange, which class moved. What is
    remembered is part of the head (``head.records["watch"]``), so ``save`` keeps it, and a new
    ``Watch`` of the same head continues.

    Args:
        head: a head or a ``HeadClassifier`` that was calibrated.
        false_alarms: the chance that there is ever a false alarm, of any question. It is spent
            once: each ``reset`` spends it anew. None: 0.05, or what the head is watched with.
        rows: instead, how many rows pass between false alarms on average, at least; the questions
            are then begun anew after each alarm.
        tolerance: by how much the share of wrong answers may rise before that counts as worse.
        reset: forget what was seen before, and begin anew.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> head = ll.make_head("slda", in_features=64)
    >>> head.observe(data.train.z, data.train.y)
    >>> head.calibrate(data.test.z[:5000], data.test.y[:5000])
    >>> watch = ll.Watch(head, false_alarms=0.05)
    >>> watch.see(data.test.z[5000:], data.test.y[5000:])
    ()
    >>> [alarm.question for alarm in watch.see(data.test.z[:2000] + 0.5, data.test.y[:2000])]
    ['strange', 'moved']
    """

    def __init__(
        self,
        head: Head | HeadClassifier,
        false_alarms: float | None = None,
        *,
        rows: float | None = None,
        tolerance: float | None = None,
        reset: bool = False,
    ) -> None:
        expect(head, (Head, HeadClassifier), "head", "a head or a HeadClassifier")
        self._classifier = head if isinstance(head, HeadClassifier) else None
        self.head: Head = head.head_ if isinstance(head, HeadClassifier) else head
        asked = asked_for(false_alarms, rows, tolerance)
        with self.head.lock:
            before = None if reset else self.head.records.get("watch")
            if before is None:
                self._begin(DEFAULT | {k: v for k, v in asked.items() if v is not None})
            else:
                self._continue(before, asked)

    def reset(self) -> None:
        """Begin anew: the promise of the past is spent, and a new one is made."""
        with self.head.lock:
            self._begin(self.settings)

    @property
    def rules(self) -> dict[str, Rule]:
        """What each question bets on."""
        return self._compared.rules

    # Watching.

    def see(self, z: Any, y: Any = None, answered: Any = None) -> tuple[Alarm, ...]:
        """Take notice of rows, in their order, before the head learns them; all or nothing.

        Args:
            z: features (n, h), as the head or the classifier takes them.
            y: their classes, or labels of a classifier; None: they have none (yet).
            answered: what was answered when the rows came, if they were seen then, without labels:
                they are scored by that, and not asked again whether they are strange.

        Returns:
            The alarms that these rows raise, in the order of the questions.
        """
        with self.head.lock:
            if self._classifier is not None:
                z = self._classifier.features_of(z)
                y, answered = (None if labels is None else self._classifier.numbers_of(labels)
                               for labels in (y, answered))  # fmt: skip
            return self.see_rows(z, y, answered)

    def see_file(self, rows: Rows) -> tuple[Alarm, ...]:
        """Do what ``see`` does, with rows of a file for a classifier."""
        if self._classifier is None:
            raise ArgumentError("rows of a file are for the watch of a HeadClassifier")
        clf = self._classifier
        with self.head.lock:
            own = clf.labels_.like(rows.names)
            y = None if rows.y is None else clf.numbers_of(own[rows.y.numpy()])
            return self.see_rows(clf.divided(rows)[:], y)

    def see_rows(
        self, z: Tensor, y: Tensor | None = None, answered: Tensor | None = None
    ) -> tuple[Alarm, ...]:
        """Do what ``see`` does, with features and classes as the head knows them."""
        with self.head.lock:
            return self.see_judged(z, *self.head.judge(z), y, answered)

    def see_judged(
        self,
        z: Tensor,
        logits: Tensor,
        novelty: Tensor,
        y: Tensor | None = None,
        answered: Tensor | None = None,
    ) -> tuple[Alarm, ...]:
        """Do what ``see_rows`` does, with what the head as it answered has said of the rows."""
        with self.head.lock:
            return self._take(Judged.of(z, logits, novelty, y, answered))

    def _take(self, rows: Judged) -> tuple[Alarm, ...]:
        """Take notice of rows that were judged."""
        questions, names, outside = dict(self._state.questions), self._state.names, 0
        found: dict[str, list[dict[str, Any]]] = {}
        for name, (x, group) in self._compared.bets(rows).items():
            questions[name], names, found[name] = self._ask(name, questions[name], names, x, group)
            if group is not None and rows.own is not None:
                outside = len(rows.own) - len(group)
        turned_away = (*self._state.turned_away, *self._compared.away(rows))[-RECENT:]
        state = State(questions, names, self._state.outside + outside, turned_away)
        alarms = tuple(
            Alarm(question, last["row"], tuple(self._sentences(question, state, last)))
            for question in QUESTIONS
            for last in found.get(question, [])
        )
        self._keep(state)
        return alarms

    def _ask(
        self, name: str, question: Question, names: Wealth, x: Array, group: Array | None
    ) -> tuple[Question, Wealth, list[dict[str, Any]]]:
        """Ask one question about rows; return what is remembered then, and its new alarms."""
        rule, raised = self._compared.in_force(name, self.head), []
        again, ahead = self.settings["rows"] is not None, len(x)
        while len(x):
            some, of = x[:ahead], None if group is None else group[:ahead]
            spent = question.last is not None and not again
            made, n = until_alarm(question.wealth, rule, some, of, never=spent)
            taken = len(some) if n is None else n
            # Where alarms follow one another, rows far ahead would be bet on in vain.
            ahead = LOOK_AHEAD if n is not None else 4 * ahead
            if of is not None:
                naming = replace(rule, promise=self._compared.naming.promise)
                names = naming.take(names, some[:taken], of[:taken])[0] if again else made
            question = question.after(made, some[:taken])
            if n is not None:
                last = {"again": question.rows}
                if self._lasts(question):
                    question = replace(question, last={**(question.last or {}), **last})
                else:
                    last |= {"row": question.rows, **self._finding(name, question, names)}
                    raised.append(last)
                    question = replace(question, last=last, alarms=question.alarms + 1)
                if again:
                    fresh = Wealth.of(len(made.rows), rule.share)
                    question = replace(question, wealth=fresh, begun=question.rows)
            x, group = x[taken:], None if group is None else group[taken:]
        return question.noted(rule.evidence(question.wealth)), names, raised

    def _lasts(self, question: Question) -> bool:
        """Return whether a question is answered with yes.

        Where bets begin anew, alarms that follow one another sooner than false ones would on
        average are one alarm that lasts: it is told once.
        """
        rows = self.settings["rows"]
        return question.last is not None and (rows is None or question.age() <= rows)

    # What it says.

    def report(self) -> Report:
        """Return what there is to say about each question."""
        with self.head.lock:
            said = tuple(self._verdict(name, self._state) for name in QUESTIONS)
            return Report(promised(self.settings), said, self._notices())

    def page(self, path: str | os.PathLike[str]) -> None:
        """Write the report as a page that works offline."""
        from lastlayer.live.watch.watch_page import watch_page  # noqa: PLC0415  (charts)
        from lastlayer.report.page import write_page  # noqa: PLC0415

        with self.head.lock:
            page = watch_page(self.report(), self._state.questions, self.rules)
        write_page(page, a_path(path))

    def _verdict(self, name: str, state: State) -> Verdict:
        question, last = state.questions[name], self._last(name, state)
        row = None if question.last is None else question.last["row"]
        found = None if last is None else last["finding"]
        classes = {} if last is None else last["classes"]
        return Verdict(
            name, last is not None, question.rows, row, question.alarms,
            None if found is None else Finding.read(found),
            {key: Finding.read(value) for key, value in classes.items()},
            tuple(self._sentences(name, state, last)),
        )  # fmt: skip

    def _last(self, name: str, state: State) -> dict[str, Any] | None:
        """Return an alarm that lasts: as of now, or where bets began anew, as of then."""
        question = state.questions[name]
        if not self._lasts(question):
            return None
        if self.settings["rows"] is not None:
            return question.last
        return self._finding(name, question, state.names)

    def _finding(self, name: str, question: Question, names: Wealth) -> dict[str, Any]:
        """Return since when and how large, as JSON."""
        if name != MOVED:
            rule, begun = self.rules[name], question.begun
            found = verdicts.find_all(question.wealth, rule, name, begun)
            return {"finding": asdict(found), "classes": {}}
        naming = self._compared.naming
        which = named(naming.weight * names.evidence(naming.promise), 0.8 * FALSE_NAMES)
        classes = verdicts.find_classes(names, naming, which.nonzero()[0])
        return {
            "finding": None,
            "classes": {self._name(c): asdict(found) for c, found in classes.items()},
        }

    def _sentences(self, name: str, state: State, last: dict[str, Any] | None) -> list[str]:
        """Say what an alarm means; None: there is none that lasts."""
        question = state.questions[name]
        if last is None:
            return verdicts.say_nothing(name, question, self.rules[name])
        if name == MOVED:
            classes = {key: Finding.read(value) for key, value in last["classes"].items()}
            return verdicts.say_moved(classes, int((self._compared.about.rows > 0).sum()))
        finding = Finding.read(last["finding"])
        if name == STRANGE:
            return verdicts.say_strange(finding, verdicts.look_alike(state.turned_away))
        is_strange = self._lasts(state.questions[STRANGE])
        return verdicts.say_worse(finding, is_strange, "half_life" in self.head.options)

    def _name(self, c: int) -> str:
        return called(self.head, c).strip("'")

    def _notices(self) -> tuple[str, ...]:
        said = []
        calibrated = 0 if self.head.calibration is None else self.head.calibration.rows
        if calibrated < FEW:
            said.append(
                f"Only {calibrated} rows were calibrated with, so that only large changes show: "
                "calibrate with some hundred."
            )
        if any(q.last is not None for q in self._state.questions.values()) and (
            self.settings["rows"] is None
        ):
            said.append(
                "Where there was an alarm the promise is spent: --reset (in Python reset()) "
                "makes it once more."
            )
        if has_changed(self.head):
            said.append(
                "The head may have changed since it was calibrated: the promise is that it errs, "
                "and that unchanged inputs are strange, no more often than then."
            )
        if self._state.outside:
            said.append(
                f"{self._state.outside:,} rows are of classes that were not calibrated: "
                "they are outside the promise."
            )
        if self.head.records.get("watch", {}).get("forgot"):
            said.append("The head has forgotten rows that may have left a trace in this watch.")
        return tuple(said)

    # What it remembers.

    def merge(self, other: "Watch") -> Self:
        """Return the watch of both streams, of this head; its promise is that of either.

        Both must compare with the same calibration and promise the same. For "at most α ever",
        wealth is the mean of both; for rows between alarms it is their sum, as are the rows.
        """
        expect(other, Watch, "other", "a watch")
        first, second = sorted((self.head, other.head), key=id)
        with first.lock, second.lock:
            if self.settings != other.settings:
                raise MergeError(
                    f"two watches must promise the same to be merged, got {self.settings} and "
                    f"{other.settings}"
                )
            mine, theirs = ((w._compared.name, w._calibrations) for w in (self, other))
            if mine != theirs:
                raise MergeError(
                    "two watches must compare with the same calibration to be merged: calibrate "
                    "one head, copy it, and watch both copies"
                )
            made = type(self).__new__(type(self))
            made.__dict__.update(self.__dict__)
            weight = 0.5 if self.settings["rows"] is None else 1.0
            made._state = self._state.joined(other._state, weight)
            return made

    def keep(self) -> None:
        """Write what is remembered to the head, in place of what it has of another watch."""
        with self.head.lock:
            self._keep(self._state)

    def _keep(self, state: State) -> None:
        """Remember, and let the head remember."""
        document = {
            "settings": self.settings,
            "about": self._compared.name,
            "calibrations": self._calibrations,
            **state.document(),
            "forgot": bool(self.head.records.get("watch", {}).get("forgot", False)),
        }
        self.head.records = {**self.head.records, "watch": document}
        self._state = state

    def _begin(self, settings: dict[str, Any]) -> None:
        self.settings, self._calibrations = settings, 1
        self._compared = Comparison.of(self.head, settings, self._calibrations)
        fresh = {
            name: Question(Wealth.of(len(rule.p), rule.share)) for name, rule in self.rules.items()
        }
        self.head.records = {k: v for k, v in self.head.records.items() if k != "watch"}
        self._keep(State(fresh, fresh[MOVED].wealth))

    def _continue(self, before: Mapping[str, Any], asked: dict[str, Any]) -> None:
        """Continue what the head remembers of a watch."""
        try:
            settings = dict(before["settings"])
            other = {k: v for k, v in asked.items() if v is not None and v != settings[k]}
            if other:
                raise OptionError(
                    f"this head is watched with {in_words(settings)}: leave out "
                    f"{', '.join(other)}, or begin anew with reset=True (in the shell: --reset)"
                )
            self.settings, self._calibrations = settings, int(before["calibrations"])
            # A new calibration may fail as the first could: it gets half of what was left of δ.
            self._calibrations += before["about"] != name_of_calibration(self.head)
            self._compared = Comparison.of(self.head, settings, self._calibrations)
            self._state = State.read(before, self.rules, len(self._compared.about.rows))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, OptionError | NotCalibratedError):
                raise
            raise FileFormatError(
                f"what this head remembers of a watch cannot be used ({error}): begin anew with "
                "reset=True (in the shell: --reset)"
            ) from error
