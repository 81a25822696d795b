"""Advice: which head for this stream, how sure that is, why, and what it costs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any

import polars as pl
import torch

from lastlayer.advice.choosing import Choice, choose
from lastlayer.advice.finer import Finer, finer_labels
from lastlayer.advice.linear_losses import LINEAR, Why, explain
from lastlayer.advice.needs import Needs, read_bytes, read_seconds
from lastlayer.advice.references import References, on_fresh_rows, retrained
from lastlayer.advice.stream_words import Description, describe
from lastlayer.advice.words import answer_of, reasons_of
from lastlayer.catalogue.head_cards import card_of
from lastlayer.core.checks import expect, flag, whole
from lastlayer.core.names import label_of
from lastlayer.core.progress import Tell
from lastlayer.data import Features, FeatureSet
from lastlayer.data.features import TrainingFeatures
from lastlayer.estimator import HeadClassifier
from lastlayer.estimator.class_labels import text_labels
from lastlayer.evaluate.judge import Judgement, judge
from lastlayer.evaluate.splits import judged_by
from lastlayer.evaluate.stream import Stream, check_classes, lay_out
from lastlayer.scenarios import Scenario, ScenarioSpec
from lastlayer.study.comparison import head_names

VALIDATED = 500  # validation rows from which on heads are chosen by them
PIECE = 1 << 16  # rows that a head without gradient is fitted with at once

# How much of the work is done when the stream is described, the heads are judged, and the
# references are trained; the rest is to test.
DESCRIBED, JUDGED, TRAINED = 0.08, 0.68, 0.88


@dataclass(frozen=True, eq=False)
class Advice:
    """The answer for a stream; ``print`` shows it."""

    data: Stream  # the rows and tasks that it is for
    needs: Needs
    stream: Description
    judgement: Judgement
    choice: Choice
    why: Why
    references: References
    finer: tuple[Finer, ...]
    validated: References | None  # on validation rows that are too few to choose by
    tested: References | None  # on test rows

    @property
    def head(self) -> str:
        """The advised head, with its mask."""
        return self.chosen.head

    @property
    def by(self) -> Finer | None:
        """The finer label column that the advised head learns; None: it learns the label itself."""
        return next((one for one in self.finer if one.pays), None)

    @property
    def chosen(self) -> Choice:
        """The choice among the heads that learn what the advised one learns."""
        return self.choice if self.by is None else self.by.choice

    @cached_property
    def answer(self) -> str:
        """Which head, in one sentence or two."""
        return answer_of(self)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why, and what it costs, in sentences."""
        return reasons_of(self)

    @cached_property
    def table(self) -> pl.DataFrame:
        """A row for each candidate, the advised one first, then by accuracy, from 0 to 1."""
        return _table(self.judgement, self.choice)

    @cached_property
    def curves(self) -> pl.DataFrame:
        """Head, task, and accuracy on what had come by then; null: not looked at."""
        return _curves(self.judgement)

    def fit(self) -> HeadClassifier:
        """Return a classifier that has learned the whole stream, task by task.

        Its labels are those of the data, as text; ``partial_fit`` continues with what comes next.
        """
        classifier = self.classifier()
        by, stream = self.by, self.data
        names, y = (stream.names, stream.y) if by is None else (by.names, stream.columns[by.column])
        labels = text_labels([label_of(name) for name in names])
        for task in stream.tasks:
            # What is trained by gradient must see a task as a whole, again and again.
            size = len(task) if card_of(self.head).by_gradient else PIECE
            for rows in task.split(max(size, 1)):
                z = stream.z[rows].float().numpy()
                classifier.partial_fit(z, labels[y[rows].numpy()])
        return classifier

    def classifier(self) -> HeadClassifier:
        """Return the advised head with the options it was judged with, untrained."""
        if not card_of(self.head).by_gradient:
            answers = None
            if (by := self.by) is not None:
                coarse = [label_of(self.data.names[c]) for c in by.answers.tolist()]
                answers = dict(zip(map(label_of, by.names), coarse, strict=True))
            return HeadClassifier(self.head, answers=answers, batch_size=4096, random_state=0)
        verdict = self.judgement.verdicts[self.head]
        return HeadClassifier(
            self.head,
            lr=verdict.lr,
            epochs=self.judgement.epochs,
            feature_scale=self.judgement.scale,
            random_state=0,
        )

    def page(self, path: str | os.PathLike[str], then: str = "") -> None:
        """Write the answer as one self-contained HTML page; ``then``: the command to run next."""
        # Charts are slow to import.
        from lastlayer.advice.advice_page import advice_page  # noqa: PLC0415
        from lastlayer.report.page import write_page  # noqa: PLC0415

        write_page(advice_page(self, then), Path(path))

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain values, for JSON: accuracies are from 0 to 1."""
        return {
            "head": self.head,
            "learns": self.data.label if self.by is None else self.by.column,
            "answers": self.data.label,
            "answer": self.answer,
            "reasons": list(self.reasons),
            "stream": list(self.stream.sentences),
            "candidates": self.table.to_dicts(),
        }

    def __str__(self) -> str:
        return "\n".join([self.answer, "", *self.reasons])


def advise(
    data: Features | TrainingFeatures | FeatureSet,
    scenario: str | ScenarioSpec | Scenario | None = None,
    *,
    group: str | None = None,
    linear: bool = False,
    memory: int | str | None = None,
    no_samples: bool = False,
    forgets: bool = False,
    latency: float | str | None = None,
    heads: Sequence[str] | None = None,
    seed: int = 0,
    progress: Tell | None = None,
) -> Advice:
    """Say which head suits a stream, chosen on rows held out of its training data.

    Args:
        data: training and test features, or training features alone. Heads are chosen by 500
            validation rows or more, which no head learns, or else by held-out training rows. Test
            rows are used once, after the choice.
        scenario: a name ("cifar10"), a kind such as "incremental:5", "lifelong:session",
            "nested:fine/coarse" or "mixed:month" (docs/scenarios.md), or a Scenario of these data;
            None: everything at once.
        group: the label column that names each row's source; rows of one source stay together.
        linear: the head must be a plain nn.Linear.
        memory: bytes that its state may take, a number or "1MB".
        no_samples: it may keep no rows.
        forgets: it must be able to forget samples.
        latency: seconds that one prediction may take here, a number or "1ms".
        heads: the candidates; None: all heads.
        seed: decides which rows are held out.
        progress: called with the work done and all there is.

    >>> import lastlayer as ll
    >>> advice = ll.advise(ll.load_features("cifar10"), "cifar10", heads=["mean", "slda"])
    >>> advice.head, advice.fit().n_features_in_
    ('slda', 64)
    """
    expect(data, (Features, TrainingFeatures, FeatureSet), "data", "Features, or a FeatureSet")
    expect(scenario, (str, ScenarioSpec, Scenario, NoneType), "scenario", "a scenario")
    expect(group, (str, NoneType), "group", "the name of a label column")
    heads, seed = heads if heads is None else head_names(heads), whole(seed, "seed", 0, 2**63 - 1)
    needs = Needs(
        flag(linear, "linear"),
        None if memory is None else read_bytes(memory),
        flag(no_samples, "no_samples"),
        flag(forgets, "forgets"),
        None if latency is None else read_seconds(latency),
    )
    tell = progress or (lambda done, total: None)
    tell(0.0, 1.0)
    laid_out = lay_out(data, scenario, group)
    check_classes(laid_out)
    stream = describe(laid_out, seed)
    fresh, splits = laid_out.validation, None
    if fresh is not None and len(fresh) >= VALIDATED:
        laid_out, split = judged_by(laid_out, fresh)
        fresh, splits = None, [split]

    def judging(done: float, total: float) -> None:
        tell(DESCRIBED + (JUDGED - DESCRIBED) * done / total, 1.0)

    judgement = judge(
        laid_out,
        heads,
        seed=seed,
        splits=splits,
        vectors_of=frozenset([LINEAR]),
        progress=judging,
    )
    choice = choose(laid_out, judgement, needs, seed)
    why = explain(laid_out, judgement, choice)
    tell(JUDGED, 1.0)
    finer = finer_labels(laid_out, judgement, choice, needs, seed)
    by = next((one for one in finer if one.pays), None)
    references = retrained(laid_out, judgement, choice.head, seed, by=by)
    tell(TRAINED, 1.0)
    validated, tested = (
        on_fresh_rows(laid_out, rows, judgement, choice.head, seed, by)
        for rows in (fresh, laid_out.test)
    )
    return Advice(
        laid_out, needs, stream, judgement, choice, why, references, tuple(finer), validated, tested
    )


def _table(judgement: Judgement, choice: Choice) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for name, verdict in judgement.verdicts.items():
        accuracy, behind = choice.scores.accuracy(name), choice.behind.get(name)
        can = card_of(name).abilities
        rows.append(
            {
                "head": name,
                "accuracy": accuracy.value,
                "low": accuracy.low,
                "high": accuracy.high,
                "behind": None if behind is None else behind.value,
                "behind_low": None if behind is None else behind.low,
                "behind_high": None if behind is None else behind.high,
                "verdict": _verdict(name, choice),
                "alike": choice.lines[name],
                "memory": choice.sizes[name],
                "latency": verdict.latency,
                "linear": can.linear,
                "keeps_samples": can.keeps_samples,
                "forgets": can.forgets,
                "lr": verdict.lr,
                "unmet": ", ".join(choice.unmet[name]),
            }
        )
    rows.sort(key=lambda row: (row["head"] != choice.head, -row["accuracy"], row["head"]))
    return pl.DataFrame(rows, infer_schema_length=None, schema_overrides=_FLOATS)


_FLOATS = dict.fromkeys(["behind", "behind_low", "behind_high", "lr"], pl.Float64)


def _verdict(name: str, choice: Choice) -> str:
    if name == choice.head:
        return "advised"
    if choice.unmet[name]:
        return "does not fit"
    if choice.lines[name] == choice.lines[choice.head]:
        return "answers alike"
    return "within the noise" if choice.behind[name].low <= 0 else "behind"


def _curves(judgement: Judgement) -> pl.DataFrame:
    right = torch.stack([verdict.right for verdict in judgement.verdicts.values()])
    shares = right.double() / judgement.come.clamp(min=1)
    table = pl.DataFrame(
        {
            "head": list(judgement.verdicts),
            "task": [[task + 1 for task in judgement.checkpoints]] * len(right),
            "accuracy": [[x if x >= 0 else None for x in row] for row in shares.tolist()],
        }
    )
    return table.explode("task", "accuracy").cast({"accuracy": pl.Float64})
