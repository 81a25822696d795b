"""Learning a finer label column to answer the coarser one: which pair of head and column pays?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lastlayer.advice.choosing import Choice, Interval, Scores, choose, units_of
from lastlayer.advice.needs import Needs
from lastlayer.catalogue.head_cards import card_of
from lastlayer.errors import OptionError
from lastlayer.evaluate.judge import Judgement, judge
from lastlayer.evaluate.stream import Stream

PER_FINER_CLASS = 10  # rows on average; below it a column is no label


@dataclass(frozen=True, eq=False)
class Finer:
    """A column that refines the label: which head learns it best, to answer the coarser label."""

    column: str
    names: tuple[str, ...]  # of its values
    answers: Tensor  # the class that each of them stands for
    choice: Choice  # among the heads that learn it
    judgement: Judgement  # their answers, in classes of the label
    plain: Mapping[str, float]  # what the same heads reach if they learn the label itself
    gain: Interval  # of the head chosen, over the one advised for the label itself

    @property
    def name(self) -> str:
        """The pair of head and column."""
        return by_column(self.choice.head, self.column)

    @property
    def pays(self) -> bool:
        """Whether the pair is shown to be better than the head that learns the label itself."""
        return self.gain.low > 0


def by_column(head: str, column: str) -> str:
    """Return what a head that learns a finer column is called.

    >>> by_column("slda", "species")
    "slda by 'species'"
    """
    return f"{head} by '{column}'"


def finer_labels(
    stream: Stream, judgement: Judgement, choice: Choice, needs: Needs, seed: int = 0
) -> list[Finer]:
    """Try each column that refines the label, with the heads that learn in one pass.

    Among the pairs of head and column the choice is as among the heads; the pair that gains most
    over the head chosen for the label itself comes first.
    """
    heads = [
        name
        for name in judgement.verdicts
        if not card_of(name).by_gradient
        and (name == choice.head or not card_of(name).abilities.keeps_samples)
    ]
    found = []
    for column, values in stream.columns.items():
        answers = _coarse_of(stream, values)
        if column == stream.label or answers is None or not heads:
            continue
        learned = by_finer(stream, column, answers, heads, judgement)
        wider = replace(stream, n_classes=len(answers))
        try:
            best = choose(wider, learned, needs, seed)
        except OptionError:  # none of them meets the constraints
            continue
        own, other = judgement.right(choice.head), learned.right(best.head)
        pair = Scores({"own": own, "other": other}, units_of(stream, judgement), seed)
        named = stream.column_names.get(column) or tuple(map(str, range(len(answers))))
        plain = {name: float(judgement.right(name).double().mean()) for name in learned.verdicts}
        gain = pair.difference("other", "own")
        found.append(Finer(column, named, answers, best, learned, plain, gain))
    return sorted(found, key=lambda one: -one.gain.value)


def by_finer(
    stream: Stream, column: str, answers: Tensor, heads: Sequence[str], judgement: Judgement
) -> Judgement:
    """Let heads learn a finer column on the same splits; their answers are the coarser classes."""
    n, splits = len(answers), judgement.splits
    finer = replace(stream, y=stream.columns[column], n_classes=n, names=tuple(map(str, range(n))))
    learned = judge(finer, heads, splits=splits, curves=False)
    verdicts = {
        name: replace(
            verdict,
            answers=tuple(answers[own.clamp(min=0)] for own in verdict.answers),
            latency=getattr(judgement.verdicts.get(name), "latency", math.nan),
        )
        for name, verdict in learned.verdicts.items()
    }
    return replace(learned, verdicts=verdicts, held_y=judgement.held_y)


def _coarse_of(stream: Stream, values: Tensor) -> Tensor | None:
    """Return the class of each value of a column that refines the label; None: it does not."""
    y, values = stream.y[stream.rows], values[stream.rows]
    coarse = torch.zeros(int(values.max()) + 1, dtype=torch.int64)
    coarse[values] = y
    n_values, n_classes = len(values.unique()), len(y.unique())
    refines = bool((coarse[values] == y).all()) and n_values > n_classes
    return coarse if refines and len(y) >= PER_FINER_CLASS * n_values else None
