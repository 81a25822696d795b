"""What the linear layer loses on a stream, what would repair it, and which classes clash."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lastlayer.advice.choosing import Choice, Interval, Scores
from lastlayer.analysis import (
    REPAIRS,
    data_angles,
    first_seen,
    interference_risk,
    riskiest_pairs,
    trace_losses,
)
from lastlayer.catalogue.head_cards import card_of, split_name
from lastlayer.evaluate.judge import Judgement
from lastlayer.evaluate.stream import Stream

LINEAR = "linear"  # what most people use
MOST_CLASSES = 1000  # whose pairs are all looked at
PAIRS = 5


@dataclass(frozen=True)
class Confusion:
    """Rows of one class that a head mistakes for another."""

    true: str
    taken_for: str
    share: float  # of the rows of that class


@dataclass(frozen=True, eq=False)
class Why:
    """What the linear layer loses, and what would repair that."""

    repairs: Mapping[str, float]  # share of all held-out rows lost, by what would repair them
    remedies: Mapping[str, tuple[str, Interval]]  # kind of layer → the best head, what it gains
    clashes: tuple[tuple[str, str, float], ...]  # class, wrong class, risk above 1
    confusions: tuple[Confusion, ...]  # of the advised head


def explain(stream: Stream, judgement: Judgement, choice: Choice) -> Why:
    """Analyse the linear layer and the advised head on the held-out rows."""
    repairs, clashes = _linear(stream, judgement)
    return Why(
        repairs,
        _remedies(choice.scores, list(judgement.verdicts)),
        clashes,
        confusions(stream, judgement, choice.head),
    )


def _linear(
    stream: Stream, judgement: Judgement
) -> tuple[dict[str, float], tuple[tuple[str, str, float], ...]]:
    verdict = judgement.verdicts.get(LINEAR)
    if verdict is None or verdict.vectors is None or (verdict.answers[0] < 0).any():
        return {}, ()
    split = judgement.splits[0]
    z = (stream.z[split.held].float() / judgement.scale).numpy()
    y = judgement.held_y[0].numpy()
    weight = (verdict.vectors.weight * verdict.vectors.gain[..., None]).numpy()
    repairs: dict[str, float] = {}
    if len(judgement.checkpoints) > 1:
        learned = _learned(stream, split.tasks, judgement.checkpoints)
        losses = trace_losses(weight, verdict.vectors.bias.numpy(), z, y, learned)
        counts = losses.repairs[-1].sum(0)
        repairs = {name: float(n) / len(y) for name, n in zip(REPAIRS, counts, strict=True)}
    if stream.n_classes > MOST_CLASSES:
        return repairs, ()
    risk = interference_risk(data_angles(z, y, weight[-1]))
    pairs = riskiest_pairs(np.where(risk > 1, risk, np.nan), PAIRS)
    return repairs, tuple((stream.names[a], stream.names[b], r) for a, b, r in pairs)


def _learned(
    stream: Stream, tasks: Sequence[Tensor], checkpoints: Sequence[int]
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the first checkpoint at which each class has arrived; −1 for never."""
    parts = []
    start = 0
    for stop in checkpoints:
        rows = torch.cat(list(tasks[start : stop + 1]))
        parts.append(stream.y[rows].numpy())
        start = stop + 1
    return first_seen(parts, stream.n_classes)


def _remedies(scores: Scores, heads: Sequence[str]) -> dict[str, tuple[str, Interval]]:
    """Return the best head of each way to repair a linear layer, and what it gains."""
    if LINEAR not in heads:
        return {}
    kinds: dict[str, list[str]] = {
        "a mask on the same layer": [],
        "weights of which only the direction counts": [],
        "weights computed from sums, or samples kept": [],
    }
    masked, turned, computed = kinds.values()
    for name in heads:
        base, mask = split_name(name)
        if not card_of(name).by_gradient:
            computed.append(name)
        elif base == LINEAR and mask != "none":
            masked.append(name)
        elif base != LINEAR:
            turned.append(name)
    best = {kind: max(own, key=scores.of) for kind, own in kinds.items() if own}
    return {kind: (name, scores.difference(name, LINEAR)) for kind, name in best.items()}


def confusions(stream: Stream, judgement: Judgement, head: str) -> tuple[Confusion, ...]:
    """Return the pairs of classes that a head confuses most, on all held-out rows."""
    y = torch.cat(judgement.held_y)
    answers = torch.cat(judgement.verdicts[head].answers)
    wrong = (answers != y) & (answers >= 0)
    keys, counts = (y[wrong] * stream.n_classes + answers[wrong]).unique(return_counts=True)
    of_class = y.bincount(minlength=stream.n_classes)
    order = counts.argsort(descending=True, stable=True)[: 2 * PAIRS]
    found = []
    for key, count in zip(keys[order].tolist(), counts[order].tolist(), strict=True):
        true, taken = divmod(key, stream.n_classes)
        share = count / int(of_class[true])
        found.append(Confusion(stream.names[true], stream.names[taken], share))
    return tuple(found)
