"""What a watch says: since when, how large, what to do, one sentence each."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lastlayer.heads.reference import DIRECTIONS, REACH
from lastlayer.live.betting import interval, spent
from lastlayer.live.questions import MOVED, STRANGE, WORSE, Question, Rule
from lastlayer.live.wealth import Wealth

SURE = 0.05  # confidence sequences miss with at most this chance, whenever one looks
NATS = 3.0  # how much log-wealth around its last low leaves the start of a change open
LISTED = 5  # classes in a sentence

ASKS = {
    WORSE: "Is the head getting worse?",
    STRANGE: "Are the inputs strange?",
    MOVED: "Which class moved?",
}


@dataclass(frozen=True)
class Size:
    """How often something happened, or where a mean lies, since a change."""

    share: float
    low: float  # with ``high``: the confidence sequence
    high: float
    usual: float  # at the calibration
    most: float  # what it could have been without a change


@dataclass(frozen=True)
class Finding:
    """A change of one question, or of one class."""

    since: int  # after so many rows
    first: int  # with ``last``: between which rows it began, by a rule of thumb
    last: int
    rows: int  # since then
    size: Size
    shift: Size | None = None  # of a class: along the direction in which it moved most


@dataclass(frozen=True)
class Verdict:
    """The answer to one question."""

    question: str
    alarm: bool
    rows: int  # that it was asked about
    row: int | None  # of the last alarm
    alarms: int
    finding: Finding | None
    classes: dict[str, Finding]  # that moved, with all names at most 5 % wrong on average
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        """Return the question and its answer, as text."""
        said = "\n".join(f"  {sentence}" for sentence in self.sentences)
        return f"{ASKS[self.question]} {'YES' if self.alarm else 'no sign of it'}\n{said}"


@dataclass(frozen=True)
class Report:
    """What a watch has to say, in the order in which a person asks."""

    promise: str
    verdicts: tuple[Verdict, ...]
    notices: tuple[str, ...]

    @property
    def alarms(self) -> tuple[Verdict, ...]:
        """The verdicts that are alarms."""
        return tuple(verdict for verdict in self.verdicts if verdict.alarm)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Return all of it as text."""
        parts = [str(verdict) for verdict in self.verdicts]
        return "\n\n".join([*parts, "\n".join([self.promise, *self.notices])])


def find(wealth: Wealth, rule: Rule, group: int, begun: int, d: int = 0) -> Finding:
    """Return since when, and how large.

    Args:
        wealth: what is remembered.
        rule: what was bet on.
        group: of whose rows.
        begun: rows before the bets began.
        d: on which of the things that are looked at.
    """
    rows, since = int(wealth.rows[group]), int(wealth.since[group])
    gained = float(wealth.path[group] - wealth.low[group])
    around = int(np.ceil(NATS * (rows - since) / max(gained, 1e-9))) if gained > 0 else rows
    return Finding(
        begun + since,
        begun + max(since - around, 0),
        begun + min(since + around, rows),
        rows - since,
        size_of(wealth, rule, group, d),
    )


def size_of(wealth: Wealth, rule: Rule, group: int, d: int) -> Size:
    """Return how large something is, with a confidence sequence that knows how it was chosen.

    Where the change began was chosen by the data, and of many classes and directions one: the
    chance to miss is divided among all of them.
    """
    rows, since = int(wealth.rows[group]), int(wealth.since[group])
    total, n = float(wealth.sums[group, d]), rows - since
    weight = rule.share.sum(axis=1)[d] * rule.weight[group] / max(rule.weight.sum(), 1)
    low, high = interval(total, n, SURE * float(spent(np.array(since + 1))) * float(weight))
    usual, most = float(rule.usual[group, d]), float(rule.p[group, d])
    return Size(total / n if n else usual, low, high, usual, most)


def shift_of(wealth: Wealth, rule: Rule, group: int) -> Size:
    """Return how far a class moved along the direction in which it did most, in deviations."""
    rows = max(int(wealth.rows[group] - wealth.since[group]), 1)
    mean = wealth.sums[group, 1:] / rows
    d = 1 + int((mean - rule.usual[group, 1:]).argmax())
    size = size_of(wealth, rule, group, d)
    ends = size.share, size.low, size.high, size.usual, size.most
    return Size(*(float(2 * REACH * (end - size.usual)) for end in ends))


def percent(share: float) -> str:
    """Return a share as it is said.

    >>> percent(0.0523), percent(0.5)
    ('5.2 %', '50 %')
    """
    return f"{100 * share:.{1 if share < 0.1 else 0}f} %"


def _since(found: Finding, of: str) -> str:
    return f"since about row {found.since:,} of {of} ({found.first:,} to {found.last:,})"


def _between(size: Size) -> str:
    return f"{percent(size.share)} ({percent(size.low)} to {percent(size.high)})"


def say_worse(found: Finding, is_strange: bool, learns: bool) -> list[str]:
    """Say what a rising error means."""
    inputs = "the inputs are strange as well: label some of what is turned away, and learn it"
    answers = "the inputs look as before: check the labels, and what a class means now"
    keep = "" if learns else "; a head with half_life forgets the old by itself"
    return [
        f"It has been wrong more often {_since(found, 'the labelled ones')}.",
        f"{_between(found.size)} of the answers since then were wrong; "
        f"at the calibration {percent(found.size.usual)}, and at most {percent(found.size.most)}.",
        f"To do: {inputs if is_strange else answers}{keep}; then recalibrate.",
    ]


def say_strange(found: Finding, alike: tuple[int, int]) -> list[str]:
    """Say what strange inputs mean, and whether they look like one another."""
    group, of = alike
    new_class = (
        f"{group} of the last {of} that were turned away look like one another: perhaps a new "
        "class, so label some of them"
        if 2 * group > of >= 8
        else f"those turned away do not look like one another ({group} of the last {of} do): "
        "perhaps another source or a broken input, so look at some of them"
    )
    return [
        f"More inputs than before are unlike anything known {_since(found, 'all')}.",
        f"{_between(found.size)} of the inputs since then are beyond the limit; at the calibration "
        f"{percent(found.size.usual)}, and at most {percent(found.size.most)}.",
        f"To do: {new_class}; then learn them and recalibrate.",
    ]


def say_moved(classes: dict[str, Finding], n_classes: int) -> list[str]:
    """Say which classes moved, and how."""
    if not classes:
        return [
            "The classes together have changed, but none can be named yet.",
            "To do: go on labelling; the classes that moved will be named.",
        ]
    names = list(classes)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    said = [f"{len(names)} of {n_classes} classes: {', '.join(names[:LISTED])}{more}."]
    for name in names[:LISTED]:
        found = classes[name]
        far = "" if found.shift is None else (
            f"; moved by {found.shift.share:.1f} deviations along one of {DIRECTIONS} directions "
            f"({found.shift.low:.1f} to {found.shift.high:.1f})"
        )  # fmt: skip
        said.append(
            f"{name}, {_since(found, 'its own')}: {_between(found.size)} of its rows are beyond "
            f"its limit, at the calibration {percent(found.size.usual)}{far}."
        )
    said.append(
        f"To do: collect labels of {', '.join(names[:LISTED])}{more}, learn them, recalibrate."
    )
    return said


def say_nothing(name: str, question: Question, rule: Rule) -> list[str]:
    """Say what was seen where there is no alarm."""
    rows = question.rows
    if not rows:
        return [f"It has seen no rows{'' if name == STRANGE else ' that have labels'}."]
    if name == MOVED:
        return [f"No class has moved as far as {rows:,} labelled rows can tell."]
    what = "answers were wrong" if name == WORSE else "inputs are beyond the limit"
    share, usual, most = question.hits / rows, float(rule.usual[0, 0]), float(rule.p[0, 0])
    return [
        f"{percent(share)} of {rows:,} {what}; at the calibration {percent(usual)}, and up to "
        f"{percent(most)} counts as unchanged."
    ]


def look_alike(recent: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Return how many of some strange rows look like one of them, and how many there are.

    Args:
        recent: where each is along the directions, in deviations within classes.
    """
    rows = np.array(recent, dtype=np.float64).reshape(-1, DIRECTIONS)
    if not len(rows):
        return 0, 0
    apart = ((rows[:, None] - rows) ** 2).sum(axis=2)
    # Two rows of one class are 2 · DIRECTIONS apart on average.
    return int((apart <= 2 * DIRECTIONS).sum(axis=1).max()), len(rows)
