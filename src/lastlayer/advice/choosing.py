"""Choosing: the best on held-out rows, or one that needs less and is as good; ties are named."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lastlayer.advice.needs import Needs, time_in_words
from lastlayer.catalogue.head_cards import card_of, size_in_words, thrift
from lastlayer.errors import DataError, OptionError
from lastlayer.evaluate.judge import Judgement
from lastlayer.evaluate.stream import Stream

MARGIN = 0.005  # a cheaper head may lose less than this
MUCH, AS_MUCH = 10.0, 2.0  # times less work or memory is much cheaper; times more is no worse
LEVEL = 0.95  # of all intervals
DRAWS = 1000  # of the bootstrap
FEW = 10  # right or wrong answers, too few for the bootstrap
ALIKE = 0.995  # heads that answer the same for this share of the rows are one line
GUESS = "always the most common class"

QUICK = 1e9  # multiplications after a change that nobody waits for

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A difference or an accuracy, from 0 to 1, with its 95 % interval."""

    value: float
    low: float
    high: float

    def turned(self) -> "Interval":
        """Return the same difference, seen from the other side."""
        return Interval(-self.value, -self.high, -self.low)

    def __str__(self) -> str:
        value, low, high = (
            f"{100 * x:.1f}".replace("-", "−") for x in (self.value, self.low, self.high)
        )
        return f"{value} ({low} to {high})"


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Return the shares that n answers, so many of them right, do not contradict (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + LEVEL) / 2) ** 2 / n
    middle, reach = share + z / 2, math.sqrt(z * share * (1 - share) + z * z / 4)
    return (middle - reach) / (1 + z), (middle + reach) / (1 + z)


class Scores:
    """Right answers of heads on the same held-out rows, with bootstrap intervals.

    ``right`` has 1 where an answer (m,) is right, over all splits, one after another; ``unit`` (m,)
    says which of the rows are drawn together: those held out in several splits, and those of one
    source.

    >>> right = {name: torch.tensor([True, True, True, False]) for name in "ab"}
    >>> scores = Scores(right, unit=np.arange(4))
    >>> scores.accuracy("a").value, scores.behind("a", ["b"])["b"]
    (0.75, Interval(value=0.0, low=0.0, high=0.0))
    """

    def __init__(self, right: Mapping[str, Any], unit: NDArray[Any], seed: int = 0) -> None:
        self.names = list(right)
        _, inverse = np.unique(unit, return_inverse=True)
        n = int(inverse.max()) + 1
        self._count = np.bincount(inverse, minlength=n).astype(np.float64)
        table = [np.bincount(inverse, np.asarray(one, np.float64), n) for one in right.values()]
        self._right = np.stack(table, axis=1)
        self._drawn = self._draw(seed)
        self._mean = self._right.sum(axis=0) / self._count.sum()

    def _draw(self, seed: int) -> Floats:
        """Return the accuracies (DRAWS, heads) of a bootstrap with Poisson weights."""
        random = np.random.default_rng(seed)
        both = np.concatenate([self._right, self._count[:, None]], axis=1).astype(np.float32)
        size = max(1, (1 << 22) // len(both))
        parts = []
        for start in range(0, DRAWS, size):
            weight = random.poisson(1.0, size=(min(size, DRAWS - start), len(both)))
            parts.append(weight.astype(np.float32) @ both)
        sums = np.concatenate(parts).astype(np.float64)
        return sums[:, :-1] / np.maximum(sums[:, -1:], 1.0)

    def of(self, name: str) -> float:
        """Return the share of right answers."""
        return float(self._mean[self.names.index(name)])

    def accuracy(self, name: str) -> Interval:
        """Return the share of right answers with its interval.

        Draws of rows that are nearly all right, or all wrong, hardly differ, and tell too little of
        what other rows would be: there the interval is Wilson's, if that is wider.
        """
        k = self.names.index(name)
        found, n = self._interval(self._mean[k], self._drawn[:, k]), len(self._count)
        if min(found.value, 1 - found.value) * n >= FEW:
            return found
        low, high = _wilson(found.value, n)
        return Interval(found.value, min(found.low, low), max(found.high, high))

    def difference(self, better: str, worse: str) -> Interval:
        """Return how much more often one is right than another, paired."""
        a, b = self.names.index(better), self.names.index(worse)
        return self._interval(self._mean[a] - self._mean[b], self._drawn[:, a] - self._drawn[:, b])

    def _interval(self, value: float, drawn: Floats) -> Interval:
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(drawn, [tail, 1 - tail])
        return Interval(float(value), float(low), float(high))

    def behind(self, best: str, others: Sequence[str]) -> dict[str, Interval]:
        """Return how far others are behind one, with intervals that hold for all at once."""
        first, rest = self.names.index(best), [self.names.index(name) for name in others]
        if not rest:
            return {}
        value = self._mean[first] - self._mean[rest]
        drawn = self._drawn[:, [first]] - self._drawn[:, rest]
        error = drawn.std(axis=0)
        off = np.abs(drawn - value) / np.where(error > 0, error, np.inf)
        reach = float(np.quantile(off.max(axis=1), LEVEL)) * error
        return {
            name: Interval(float(v), float(v - r), float(v + r))
            for name, v, r in zip(others, value, reach, strict=True)
        }


@dataclass(frozen=True, eq=False)
class Choice:
    """Which head, and how sure that is."""

    head: str
    best: str  # of those that meet the constraints, on the held-out rows
    scores: Scores
    behind: Mapping[str, Interval]  # all that may be advised, behind the best
    level: tuple[str, ...]  # the best of each other line that cannot be told from it
    lines: Mapping[str, str]  # each head's line: the thriftiest of those that answer alike
    unmet: Mapping[str, tuple[str, ...]]  # constraints that heads do not meet
    costs: Mapping[str, Interval]  # what each constraint costs
    sizes: Mapping[str, int]  # bytes of their state
    guess: str  # the class that is answered by who only guesses
    learned: bool  # whether the best is shown to be better than a guess

    @property
    def twins(self) -> tuple[str, ...]:
        """The heads that answer as the advised one does."""
        own = self.lines[self.head]
        return tuple(name for name, line in self.lines.items() if line == own and name != self.head)


def choose(stream: Stream, judgement: Judgement, needs: Needs, seed: int = 0) -> Choice:
    """Choose among the candidates that were judged; the seed is that of the bootstrap."""
    names = list(judgement.verdicts)
    if not names:
        why = "; ".join(f"{name}: {text}" for name, text in judgement.left_out.items())
        raise DataError(f"no head could be judged on these data: {why}")
    common = int(stream.y[stream.rows].bincount().argmax())
    scores = score(stream, judgement, common, seed)
    h, n = stream.z.shape[1], len(stream.rows)
    sizes = {name: card_of(name).size(h, stream.n_classes, n) for name in names}
    unmet = {
        name: needs.unmet(name, sizes[name], judgement.verdicts[name].latency) for name in names
    }
    free = [name for name in names if not unmet[name]]
    if not free:
        raise OptionError(_nobody(needs, judgement, sizes))
    best = _best(scores, free)
    behind = scores.behind(best, [name for name in free if name != best])
    size = h, stream.n_classes, n
    head = _cheapest(best, behind, size)
    lines = _lines(judgement, scores)
    mine = {lines[head], lines[best]}
    level = dict.fromkeys(lines[name] for name, b in behind.items() if b.low <= 0)
    # Named as the table names a line: by the head of it that is right most often.
    named = {
        line: min((x for x in behind if lines[x] == line), key=lambda x: (-scores.of(x), x))
        for line in level
    }
    over_guess = scores.behind(GUESS, free)
    return Choice(
        head=head,
        best=best,
        scores=scores,
        behind={best: Interval(0.0, 0.0, 0.0), **behind},
        level=tuple(named[line] for line in level if line not in mine),
        lines=lines,
        unmet=unmet,
        costs=_costs(needs, scores, unmet, head),
        sizes=sizes,
        guess=stream.names[common],
        learned=over_guess[best].high < 0,
    )


def _cheapest(best: str, behind: Mapping[str, Interval], size: tuple[int, int, int]) -> str:
    """Return the head to advise: the best, or a cheaper one that loses next to nothing.

    The thriftiest of those that are shown to lose less than the margin; then, as long as there is
    one, the best of those that are much cheaper still, are not shown to be behind, and on these
    rows lose less than the margin too.
    """
    head = min([best, *(name for name, b in behind.items() if b.high < MARGIN)], key=_thrift)
    near = [name for name, b in behind.items() if b.low <= 0 and b.value < MARGIN]
    while cheaper := [name for name in near if much_cheaper(name, head, size)]:
        head = min(cheaper, key=lambda name: (behind[name].value, _thrift(name)))
    return head


def much_cheaper(name: str, other: str, size: tuple[int, int, int]) -> bool:
    """Return whether one head costs much less to use than another.

    It keeps no rows where the other keeps them all, or learns in one pass where the other needs
    many, and answers with at most twice the work; or it is no worse in this, and takes a tenth of
    the work or a tenth of the memory, and of the other at most twice as much. Nor does it take
    longer before it answers again after a change, by more than a moment. The size is that of
    features, the number of classes, and the number of rows that are learned.

    >>> much_cheaper("random_slda", "qda", (384, 150, 15_000))
    True
    >>> much_cheaper("slda", "ridge", (384, 150, 15_000))
    False
    """
    one, two = card_of(name), card_of(other)
    work = one.answer(*size) / two.answer(*size)
    memory = one.size(*size) / two.size(*size)
    if one.refresh(*size) > AS_MUCH * max(two.refresh(*size), QUICK):
        return False
    kept, like = thrift(name)[:2], thrift(other)[:2]
    if kept != like:
        return kept < like and work <= AS_MUCH
    return min(work, memory) <= 1 / MUCH and max(work, memory) <= AS_MUCH


def score(stream: Stream, judgement: Judgement, common: int, seed: int = 0) -> Scores:
    """Put the right answers of all candidates, and of a guess, side by side."""
    right = {name: judgement.right(name) for name in judgement.verdicts}
    guess = torch.cat(judgement.held_y) == common
    return Scores({**right, GUESS: guess}, units_of(stream, judgement), seed)


def units_of(stream: Stream, judgement: Judgement) -> NDArray[Any]:
    """Return which held-out rows are drawn together: the same row, or rows of one source."""
    rows = torch.cat([split.held for split in judgement.splits])
    return (rows if stream.group is None else stream.group[rows]).numpy()


def _thrift(name: str) -> tuple[Any, ...]:
    return (*thrift(name), name)


def _best(scores: Scores, names: Sequence[str]) -> str:
    return min(names, key=lambda name: (-scores.of(name), _thrift(name)))


def _lines(judgement: Judgement, scores: Scores) -> dict[str, str]:
    """Group heads that give the same answers, each group named by the thriftiest."""
    answers = {name: torch.cat(v.answers) for name, v in judgement.verdicts.items()}
    groups: list[list[str]] = []
    for name in sorted(answers, key=lambda name: (-scores.of(name), _thrift(name))):
        for group in groups:
            if float((answers[group[0]] == answers[name]).double().mean()) >= ALIKE:
                group.append(name)
                break
        else:
            groups.append([name])
    return {name: min(group, key=_thrift) for group in groups for name in group}


def _costs(
    needs: Needs, scores: Scores, unmet: Mapping[str, tuple[str, ...]], head: str
) -> dict[str, Interval]:
    """Return what each constraint costs: how much better the best head is that misses only that."""
    costs = {}
    for name in needs.given:
        freer = [other for other, lacks in unmet.items() if set(lacks) <= {name}]
        costs[name] = scores.difference(_best(scores, freer), head)
    return costs


def _nobody(needs: Needs, judgement: Judgement, sizes: Mapping[str, int]) -> str:
    """Return a message saying that no head meets the constraints, and which come nearest."""
    given = " ".join(map(needs.words, needs.given))
    hints = []
    if needs.memory is not None:
        small = min(sizes, key=lambda name: sizes[name])
        hints.append(f"the smallest is {small} with {size_in_words(sizes[small])}")
    if needs.latency is not None:
        times = {name: verdict.latency for name, verdict in judgement.verdicts.items()}
        fast = min(times, key=lambda name: times[name])
        hints.append(f"the fastest is {fast} with {time_in_words(times[fast])} for one sample")
    return f"no head meets {given} on these data; " + "; ".join(hints or ["ask for less"])
