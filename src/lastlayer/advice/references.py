"""What the advised head is compared with: retraining on the same data, and fresh rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lastlayer.advice.choosing import Interval, Scores, units_of
from lastlayer.advice.finer import Finer, by_finer
from lastlayer.advice.linear_losses import LINEAR
from lastlayer.catalogue.head_cards import card_of
from lastlayer.data import FeatureSet
from lastlayer.evaluate.costs import too_large_to_retrain
from lastlayer.evaluate.judge import Judgement, judge
from lastlayer.evaluate.softmax import reference
from lastlayer.evaluate.splits import judged_by
from lastlayer.evaluate.stream import Stream
from lastlayer.heads import FeatureMap, make_head
from lastlayer.heads.maps.feature_map import ROWS

SOFTMAX = "softmax regression retrained on everything"
KERNEL = "kernel ridge regression, which keeps all rows"  # nearly always the best of any kind
MAPPED = "softmax regression behind the same map, retrained on everything"
WIDE = "softmax regression behind a wide map, retrained on everything"
AT_ONCE = " on everything at once"
WIDEST = "random_ridge"  # whose map stands for all that is not linear

Rights = dict[str, Tensor]  # by name, whether it is right (m,) on all held-out rows


@dataclass(frozen=True, eq=False)
class References:
    """Accuracies of the advised head and of its references, on the same rows."""

    scores: Scores
    head: str  # or the pair of head and finer column
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

    def left_to_gain(self) -> Interval | None:
        """Return how much more often kernel ridge regression is right; None: it was not judged.

        Then ``price`` tells it, of a softmax regression behind a map.
        """
        if KERNEL not in self:
            return None
        return self.scores.difference(KERNEL, self.head)

    def fall(self, head: str) -> Interval | None:
        """Return what a head lost by learning a stream instead of everything at once."""
        if head + AT_ONCE not in self.scores.names:
            return None
        return self.scores.difference(head + AT_ONCE, head)


def retrained(
    stream: Stream,
    judgement: Judgement,
    head: str,
    seed: int = 0,
    *,
    by: Finer | None = None,
    at_once: bool = True,
) -> References:
    """Train the references on the rows that the candidates learned from, all at once.

    They predict the same rows as the candidates; the seed is that of their own held-out rows. The
    pair ``by`` is advised in place of the head. ``at_once``: heads that depend on the order of
    their data are trained on everything too.
    """
    heads = [name for name in dict.fromkeys([head, LINEAR]) if name in judgement.verdicts]
    right: Rights = {name: judgement.right(name) for name in heads}
    if by is not None:
        right[by.name] = by.judgement.right(by.choice.head)
    if at_once:
        _at_once(stream, judgement, heads, right)
    names = _softmax(stream, judgement, head, right, seed)
    _kernel(judgement, head, right)
    scores = Scores(right, units_of(stream, judgement), seed)
    advised = head if by is None else by.name
    return References(scores, advised, names, sum(map(len, judgement.held_y)))


def _at_once(stream: Stream, judgement: Judgement, heads: Sequence[str], right: Rights) -> None:
    """Train heads that depend on the order of their data on everything at once."""
    trained = [name for name in heads if not card_of(name).abilities.order_free]
    if not trained or stream.n_tasks == 1:
        return
    splits = [replace(split, tasks=(torch.cat(split.tasks),)) for split in judgement.splits]
    found = judge(replace(stream, tasks=(stream.rows,)), trained, splits=splits, curves=False)
    right |= {name + AT_ONCE: found.right(name) for name in found.verdicts}


def _softmax(
    stream: Stream, judgement: Judgement, head: str, right: Rights, seed: int
) -> tuple[str, ...]:
    names = []
    maps: dict[str, FeatureMap | None] = {SOFTMAX: None}
    if (own := _map_of(head, stream)) is not None:
        maps[MAPPED] = own
    elif "kernel_ridge" in judgement.left_out and (wide := _map_of(WIDEST, stream)) is not None:
        maps[WIDE] = wide  # in place of the best of any kind, for which there are too many rows
    for name, map in maps.items():
        width = stream.z.shape[1] if map is None else map.width
        if too_large_to_retrain(len(stream.rows), width, stream.n_classes):
            continue
        names.append(name)
        answers = []
        for split in judgement.splits:
            rows = torch.cat(split.tasks)
            z = stream.z[rows].float()
            fitted = reference(z, stream.y[rows], stream.n_classes, map=map, seed=seed, quick=True)
            answers.append(fitted.predict(split.held_of(stream.z).float()))
        right[name] = torch.cat(answers) == torch.cat(judgement.held_y)
    return tuple(names)


def _kernel(judgement: Judgement, head: str, right: Rights) -> None:
    """Take the candidate that is the best of any kind: whatever the order, it is its own refit."""
    found = judgement.verdicts.get("kernel_ridge")
    if found is not None and head != found.head:
        right[KERNEL] = judgement.right(found.head)


def _map_of(head: str, stream: Stream) -> FeatureMap | None:
    """Return the map that a head has after the first rows of the stream; None: it has none."""
    found = make_head(head, stream.z.shape[1], stream.n_classes).feature_map
    if found is None:
        return None
    rows = torch.cat(stream.tasks)[:ROWS]
    provisional = len(rows) < ROWS
    if provisional and bool((stream.z[rows] == stream.z[rows[:1]]).all()):
        return None
    return found.fit(stream.z[rows].float(), provisional=provisional)


def on_fresh_rows(
    stream: Stream,
    rows: FeatureSet | None,
    judgement: Judgement,
    head: str,
    seed: int = 0,
    by: Finer | None = None,
) -> References | None:
    """Train the advised head, the linear layer and the references on all training rows, and test.

    Called once, after the choice, with the learning rates found before it.
    """
    if rows is None:
        return None
    whole, split = judged_by(replace(stream, group=None), rows)
    heads = [name for name in dict.fromkeys([head, LINEAR]) if name in judgement.verdicts]
    rates = {name: judgement.verdicts[name].lr for name in heads}
    found = judge(whole, heads, seed=seed, splits=[split], rates=rates, curves=False)
    if by is not None:
        learned = by_finer(whole, by.column, by.answers, [by.choice.head], found)
        by = replace(by, judgement=learned)
    return retrained(whole, found, head, seed, by=by, at_once=False)
