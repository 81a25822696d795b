"""What a watch says: since when, how large, what to do, one sentence each."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from lastlayer.core.names import first_few
from lastlayer.heads.watch_reference import DIRECTIONS, REACH
from lastlayer.live.watch.alarm import Question
from lastlayer.live.watch.betting import Array, interval, spent
from lastlayer.live.watch.rules import ERRORS, MOVED, RANK, SIDES, STRANGE, WORSE, Rule
from lastlayer.live.watch.wealth import Wealth

SURE = 0.05  # confidence sequences miss with at most this chance, whenever one looks
NATS = 12.0  # how much log-wealth around its last low leaves the start of a change open
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
    errors: Size | None = None  # of a class: how often it is answered wrongly
    shift: Size | None = None  # of a class: along the direction in which it moved most
    rank: Size | None = None  # of all rows: on average, among those of the calibration
    far: Size | None = None  # of answers: how many are as far from right as few were

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return what ``asdict`` has made a document of."""
        sizes = {
            name: None if document[name] is None else Size(**document[name])
            for name in ("size", "errors", "shift", "rank", "far")
        }
        return cls(**{**document, **sizes})


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

    @property
    def answer(self) -> str:
        """The answer in a few words; what has seen nothing cannot tell."""
        if self.alarm:
            return "YES"
        if self.rows:
            return "no sign of it"
        return f"cannot tell: no {'rows' if self.question == STRANGE else 'labels'} so far"

    def __str__(self) -> str:
        """Return the question and its answer, as text."""
        said = "\n".join(f"  {sentence}" for sentence in self.sentences)
        return f"{ASKS[self.question]} {self.answer}\n{said}"


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


def find(wealth: Wealth, rule: Rule, groups: Array, begun: int = 0) -> list[Finding]:
    """Return since when, and how large, for some groups (m,); ``begun``: rows before the bets."""
    rows, since = wealth.rows[groups], wealth.since[groups]
    gained = (wealth.path - wealth.low)[groups]
    around = np.minimum(np.ceil(NATS * (rows - since) / np.maximum(gained, 1e-9)), rows)
    first, last = np.maximum(since - around, 0), np.minimum(since + around, rows)
    sizes = sizes_of(wealth, rule, groups, np.zeros(len(groups), dtype=np.int64))
    ends = np.stack([since, first, last]).astype(np.int64) + begun
    return [
        Finding(int(since), int(first), int(last), int(n), size)
        for (since, first, last), n, size in zip(ends.T, rows - since, sizes, strict=True)
    ]


def sizes_of(wealth: Wealth, rule: Rule, groups: Array, d: Array) -> list[Size]:
    """Return how large something is, with a confidence sequence that knows how it was chosen.

    Where the change began was chosen by the data, and of many classes and directions one: the
    chance to miss is divided among all of them. ``d`` (m,) says which of the things that are
    looked at is meant, of each group (m,).
    """
    since, total = wealth.since[groups], wealth.sums[groups, d]
    rows = wealth.rows[groups] - since
    weight = rule.share.sum(axis=1)[d] * rule.part[groups]
    low, high = interval(total, rows, SURE * spent(since + 1) * weight)
    usual, most = rule.usual[groups, d], rule.most[groups, d]
    share = np.where(rows > 0, total / np.maximum(rows, 1), usual)
    return [Size(*map(float, size)) for size in zip(share, low, high, usual, most, strict=True)]


def find_all(wealth: Wealth, rule: Rule, name: str, begun: int) -> Finding:
    """Return what is found of all rows, with how far answers are from right, or inputs strange."""
    # By the highest limit, whose wealth has its low closest to the change: others rise before.
    things = np.array([RANK, len(rule.p[0]) - 1])
    highest = np.full_like(things, len(rule.p) - 1)
    (found,) = find(wealth, rule, highest[:1], begun)
    rank, far = sizes_of(wealth, rule, highest, things)
    return replace(found, rank=rank, far=far if name == WORSE else None)


def find_classes(wealth: Wealth, rule: Rule, which: Array) -> dict[int, Finding]:
    """Return what is found of some classes (m,), with how often they err and how far they moved."""
    errors = sizes_of(wealth, rule, which, np.full_like(which, ERRORS))
    shifts = shifts_of(wealth, rule, which)
    return {
        int(c): replace(found, errors=wrong, shift=shift)
        for c, found, wrong, shift in zip(
            which, find(wealth, rule, which), errors, shifts, strict=True
        )
    }


def shifts_of(wealth: Wealth, rule: Rule, groups: Array) -> list[Size]:
    """Return how far classes moved along the direction in which each did most, in deviations."""
    rows = np.maximum(wealth.rows - wealth.since, 1)[groups]
    mean = wealth.sums[groups, SIDES:] / rows[:, None]
    d = SIDES + (mean - rule.usual[groups, SIDES:]).argmax(axis=1)
    return [
        Size(*(
            2 * REACH * (end - size.usual)
            for end in (size.share, size.low, size.high, size.usual, size.most)
        ))
        for size in sizes_of(wealth, rule, groups, d)
    ]  # fmt: skip


def percent(share: float) -> str:
    """Return a share as it is said.

    >>> percent(0.0523), percent(0.5)
    ('5.2 %', '50 %')
    """
    return f"{100 * share:.{1 if share < 0.1 else 0}f} %"


def _since(found: Finding, of: str) -> str:
    early = f"{found.first:,} to" if found.first else "at the latest"
    return f"since about row {found.since:,} of {of} ({early} {found.last:,})"


def _between(size: Size) -> str:
    return f"{percent(size.share)} ({percent(size.low)} to {percent(size.high)})"


def _more(found: Finding, what: str, further: str) -> list[str]:
    """Say what else has changed than how often something happens, if that is sure."""
    far, rank = found.far, found.rank
    if far is not None and far.low > far.most:
        return [
            f"{_between(far)} of the answers were very far from right; at the calibration "
            f"{percent(far.usual)}, and up to {percent(far.most)} counts as unchanged."
        ]
    if rank is not None and rank.low > rank.most:
        return [
            f"On average {what} is {further} than {_between(rank)} of those at the calibration; "
            f"without a change than {percent(rank.usual)}, and at most {percent(rank.most)}."
        ]
    return []


def say_worse(found: Finding, is_strange: bool, learns: bool) -> list[str]:
    """Say what worse answers mean."""
    inputs = "the inputs are strange as well: label some of what is turned away, and learn it"
    answers = "the inputs look as before: check the labels, and what a class means now"
    keep = "" if learns else "; a head made with half_life=ROWS gives old rows ever less weight"
    return [
        f"Its answers have been worse {_since(found, 'the labelled ones')}.",
        f"{_between(found.size)} of the answers since then were wrong; "
        f"at the calibration {percent(found.size.usual)}, and at most {percent(found.size.most)}.",
        *_more(found, "an answer", "further from right"),
        f"To do: {inputs if is_strange else answers}{keep}; then recalibrate.",
    ]


def say_strange(found: Finding, alike: tuple[int, int]) -> list[str]:
    """Say what strange inputs mean, and whether they look like one another."""
    group, of = alike
    new_class = (
        f"{group} of the last {of} that were turned away look alike: perhaps a new "
        "class, so label some of them"
        if 3 * group >= of >= 8
        else f"at most {group} of the last {of} that were turned away look alike: perhaps another "
        "source or a broken input, so look at some of them"
    )
    return [
        f"Inputs have been stranger {_since(found, 'all')}.",
        f"{_between(found.size)} of the inputs since then are beyond the limit; at the calibration "
        f"{percent(found.size.usual)}, and at most {percent(found.size.most)}.",
        *([] if found.size.low > found.size.most else _more(found, "an input", "stranger")),
        f"To do: {new_class}; then learn them and recalibrate.",
    ]


def _how(found: Finding) -> list[str]:
    """Say how a class moved: what is sure, or all of it where nothing is."""
    said = [
        (found.size, f"{_between(found.size)} of its rows are beyond its limit, at the calibration "
         f"{percent(found.size.usual)}")
    ]  # fmt: skip
    if found.errors is not None:
        usual = percent(found.errors.usual)
        said.append((found.errors, f"{_between(found.errors)} are answered wrongly, then {usual}"))
    if found.shift is not None:
        shift = found.shift
        said.append((
            shift, f"moved by {shift.share:.1f} deviations along one of {DIRECTIONS} directions "
            f"({shift.low:.1f} to {shift.high:.1f})",
        ))  # fmt: skip
    sure = [text for size, text in said if size.low > size.most]
    return sure or [text for _, text in said]


def say_moved(classes: dict[str, Finding], n_classes: int) -> list[str]:
    """Say which classes moved, and how."""
    if not classes:
        return [
            "The classes together have changed, but none can be named yet.",
            "To do: go on labelling; the classes that moved will be named.",
        ]
    names = list(classes)
    few = first_few(names, LISTED)
    said = [f"{len(names)} of {n_classes} classes: {few}."]
    for name in names[:LISTED]:
        found = classes[name]
        said.append(f"{name}, {_since(found, 'its own')}: {'; '.join(_how(found))}.")
    source = "look at the source of the inputs, since so many moved at once; then "
    said.append(
        f"To do: {source if 2 * len(names) > n_classes > 2 else ''}label new rows "
        f"of {few}, learn them, then recalibrate."
    )
    return said


def say_nothing(name: str, question: Question, rule: Rule) -> list[str]:
    """Say what was seen where there is no alarm."""
    rows, last = question.rows, question.last
    before = [] if last is None else [f"The last alarm was at row {last['row']:,}."]
    if not rows:
        return [f"It has seen no rows{'' if name == STRANGE else ' that have labels'}."]
    if name == MOVED:
        since = " now" if before else ""
        return [f"No class has moved{since} as far as {rows:,} labelled rows can tell.", *before]
    what = "answers were wrong" if name == WORSE else "inputs are beyond the limit"
    share, usual, most = question.hits / rows, float(rule.usual[0, 0]), float(rule.most[0, 0])
    return [
        f"{percent(share)} of {rows:,} {what}; at the calibration {percent(usual)}, and up to "
        f"{percent(most)} counts as unchanged.",
        *before,
    ]


def look_alike(recent: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Return how many of some strange rows look like one of them, and how many there are.

    They are given by where each is along the directions, in deviations within classes.
    """
    rows = np.array(recent, dtype=np.float64).reshape(-1, DIRECTIONS)
    if not len(rows):
        return 0, 0
    apart = ((rows[:, None] - rows) ** 2).sum(axis=2)
    # Rows of one class are DIRECTIONS from its middle on average, and this far from one another
    # seldom but around it (docs/decisions/19 says how often others are).
    return int((apart <= DIRECTIONS).sum(axis=1).max()), len(rows)
