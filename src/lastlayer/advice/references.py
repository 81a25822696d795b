"""What the advised head is compared with: retraining on the same data, finer labels, test rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lastlayer.advice.choosing import Interval, Scores, units_of
from lastlayer.advice.course import Course
from lastlayer.advice.judging import Judgement, judge
from lastlayer.advice.split import Split
from lastlayer.advice.why import LINEAR
from lastlayer.catalogue import card_of
from lastlayer.heads import FeatureMap, make_head
from lastlayer.heads.maps import ROWS
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.training.reference import reference

SOFTMAX = "softmax regression retrained on everything"
MAPPED = "softmax regression behind the same map, retrained on everything"
AT_ONCE = " on everything at once"
WORK = 3e10  # classes × features × rows that a reference may have
ROOM = 1 << 30  # bytes of (mapped) features that it may be trained on
PER_FINER_CLASS = 10  # rows on average; below it a column is no label

Rights = dict[str, list[Tensor]]


@dataclass(frozen=True, eq=False)
class References:
    """Accuracies of the advised head and of its references, on the same rows."""

    scores: Scores
    head: str
    names: tuple[str, ...]  # of the references there are
    rows: int

    def __contains__(self, name: str) -> bool:
        return name in self.scores.names

    def price(self) -> tuple[str, Interval] | None:
        """Return the best reference, and how much more often it is right than the head."""
        if not self.names:
            return None
        best = max(self.names, key=self.scores.of)
        return best, self.scores.difference(best, self.head)

    def fall(self, head: str) -> Interval | None:
        """Return what a head lost by learning a stream instead of everything at once."""
        if head + AT_ONCE not in self.scores.names:
            return None
        return self.scores.difference(head + AT_ONCE, head)


def retrained(
    course: Course, judgement: Judgement, head: str, seed: int = 0, *, at_once: bool = True
) -> References:
    """Train the references on the rows that the candidates learned from, all at once.

    Args:
        course: the stream.
        judgement: of the candidates; the references predict the same rows.
        head: the advised one.
        seed: of the references' own held-out rows.
        at_once: whether to train heads that depend on the order of their data on everything too.
    """
    heads = [name for name in dict.fromkeys([head, LINEAR]) if name in judgement.verdicts]
    right: Rights = {
        name: [
            a == y for a, y in zip(judgement.verdicts[name].answers, judgement.held_y, strict=True)
        ]
        for name in heads
    }
    if at_once:
        _at_once(course, judgement, heads, right)
    names = _softmax(course, judgement, head, right, seed)
    scores = _scores(right, units_of(course, judgement), seed)
    return References(scores, head, names, sum(map(len, judgement.held_y)))


def _at_once(course: Course, judgement: Judgement, heads: Sequence[str], right: Rights) -> None:
    """Train heads that depend on the order of their data on everything at once."""
    trained = [name for name in heads if not card_of(name).abilities.order_free]
    if not trained or course.n_tasks == 1:
        return
    splits = [replace(split, tasks=(torch.cat(split.tasks),)) for split in judgement.splits]
    found = judge(replace(course, tasks=(course.rows,)), trained, splits=splits, curves=False)
    for name, verdict in found.verdicts.items():
        pairs = zip(verdict.answers, judgement.held_y, strict=True)
        right[name + AT_ONCE] = [answers == y for answers, y in pairs]


def _softmax(
    course: Course, judgement: Judgement, head: str, right: Rights, seed: int
) -> tuple[str, ...]:
    names = []
    for name, map in {SOFTMAX: None, MAPPED: _map_of(head, course)}.items():
        if name == MAPPED and map is None:
            continue
        numbers = len(course.rows) * (course.z.shape[1] if map is None else map.width)
        if numbers * course.n_classes > WORK or 4 * numbers > ROOM:
            continue
        names.append(name)
        right[name] = []
        for split, y in zip(judgement.splits, judgement.held_y, strict=True):
            rows = torch.cat(split.tasks)
            z = course.z[rows].float()
            fitted = reference(z, course.y[rows], course.n_classes, map=map, seed=seed, quick=True)
            right[name].append(fitted.predict(split.held_of(course.z).float()) == y)
    return tuple(names)


def _map_of(head: str, course: Course) -> FeatureMap | None:
    """Return the map that a head has after the first rows of the stream; None: it has none."""
    made = make_head(head, course.z.shape[1], course.n_classes)
    if not isinstance(made, MappedHead):
        return None
    rows = torch.cat(course.tasks)[:ROWS]
    provisional = len(rows) < ROWS
    if provisional and bool((course.z[rows] == course.z[rows[:1]]).all()):
        return None
    return made.map.fit(course.z[rows].float(), provisional=provisional)


def _scores(right: Rights, unit: "np.ndarray[tuple[int], np.dtype[np.int64]]", seed: int) -> Scores:
    whole = {name: torch.cat(parts).numpy().astype(np.float64) for name, parts in right.items()}
    return Scores(whole, unit, seed)


def on_test_rows(
    course: Course, judgement: Judgement, head: str, seed: int = 0
) -> References | None:
    """Train the advised head, the linear layer and the references on all training rows, and test.

    Called once, after the choice, with the learning rates found before it.
    """
    if course.test_z is None or course.test_y is None:
        return None
    n, m = len(course.y), len(course.test_y)
    whole = replace(
        course,
        y=torch.cat([course.y, course.test_y]),
        group=None,
        n_classes=max(course.n_classes, 1 + int(course.test_y.max())),
    )
    tested = Split(course.tasks, torch.arange(n, n + m), course.test_z)
    heads = [name for name in dict.fromkeys([head, LINEAR]) if name in judgement.verdicts]
    rates = {name: judgement.verdicts[name].lr for name in heads}
    found = judge(whole, heads, seed=seed, splits=[tested], rates=rates, curves=False)
    return retrained(whole, found, head, seed, at_once=False)


@dataclass(frozen=True, eq=False)
class Finer:
    """Whether it pays to learn a finer label column and predict the coarser one."""

    column: str
    gains: Mapping[str, tuple[float, float, Interval]]  # head → coarse, by finer, what it gains


def finer_labels(course: Course, judgement: Judgement, head: str, seed: int = 0) -> list[Finer]:
    """Try each column that refines the label, with the heads that learn in one pass."""
    heads = [
        name
        for name in judgement.verdicts
        if not card_of(name).by_gradient
        and (name == head or not card_of(name).abilities.keeps_samples)
    ]
    found = []
    for column, values in course.columns.items():
        coarse_of = _coarse_of(course, values)
        if column == course.label or coarse_of is None or not heads:
            continue
        n_finer = len(coarse_of)
        finer = replace(course, y=values, n_classes=n_finer, names=tuple(map(str, range(n_finer))))
        learned = judge(finer, heads, splits=judgement.splits, curves=False)
        right: Rights = {}
        for name, verdict in learned.verdicts.items():
            own = judgement.verdicts[name].answers
            right[name] = [a == y for a, y in zip(own, judgement.held_y, strict=True)]
            pairs = zip(verdict.answers, judgement.held_y, strict=True)
            right[f"{name} by finer"] = [coarse_of[a.clamp(min=0)] == y for a, y in pairs]
        scores = _scores(right, units_of(course, judgement), seed)
        gains = {
            name: (
                scores.of(name),
                scores.of(f"{name} by finer"),
                scores.difference(f"{name} by finer", name),
            )
            for name in learned.verdicts
        }
        found.append(Finer(column, gains))
    return found


def _coarse_of(course: Course, values: Tensor) -> Tensor | None:
    """Return the class of each value of a column that refines the label; None: it does not."""
    y, values = course.y[course.rows], values[course.rows]
    coarse = torch.zeros(int(values.max()) + 1, dtype=torch.int64)
    coarse[values] = y
    n_values, n_classes = len(values.unique()), len(y.unique())
    refines = bool((coarse[values] == y).all()) and n_values > n_classes
    return coarse if refines and len(y) >= PER_FINER_CLASS * n_values else None
