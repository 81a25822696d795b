"""Judging: every candidate learns the stream from part of the rows and predicts the rest."""

import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import all_heads, card_of, size_in_words
from lastlayer.core.progress import Meter, Tell
from lastlayer.core.threads import one_core_each, thread_count
from lastlayer.errors import LastLayerError
from lastlayer.evaluate import costs
from lastlayer.evaluate.pool import Verdict, epochs_for, learn_rows
from lastlayer.evaluate.rates import (
    NORM,
    Pair,
    best_rate,
    count_right,
    find_rates,
    fleets,
    too_large,
    train_candidates,
)
from lastlayer.evaluate.splits import Split, splits_of
from lastlayer.evaluate.stream import Stream, feature_scale
from lastlayer.heads import Head, make_head

CHECKPOINTS = 10  # at most so often is a head scored on its way
SCORING = 2.0  # seconds after which a head is scored no more before the end
CURVE_ROWS = 400  # held-out rows that make a curve: scoring some heads takes seconds
BATCH = 4096  # rows that a head without gradient is given at once
SMALL = 64 << 20  # bytes of a head that is kept until nothing else runs, to be timed then
TIMED = 31  # single predictions, of whose times the median is taken
# Heads → rows from which they are tried: with fewer they take long, and changed no advice.
WIDER = {f"{name}@{n}": n for n in (5000, 10_000) for name in ("random_ridge", "random_slda")}
WIDEST = 2.5e12  # multiplications of judging a wider head on a split: a minute of one core
SLOW = 5e11  # multiplications of judging a head on a split: seconds
SOLVED = 4e12  # multiplications of solving a head once, from which on it is left out: 20 s
SURE = 3.0  # standard errors by which such a head must be behind to be judged no further
RATING = 5  # times the work of training is what finding a learning rate takes

Found = dict[Any, Any]
Piece = tuple[Callable[[], Found], float]  # a piece of work, and its cost


@dataclass(frozen=True, eq=False)
class Judgement:
    """All candidates on the same held-out rows."""

    verdicts: Mapping[str, Verdict]
    splits: Sequence[Split]
    held_y: tuple[Tensor, ...]  # of each split, (m,) the right answers
    checkpoints: tuple[int, ...]
    come: Tensor  # (checkpoints,) held-out rows of the tasks up to each, over the same splits
    scale: float  # what features are divided by for heads trained by gradient
    epochs: int  # how often those are shown each task
    left_out: Mapping[str, str] = field(default_factory=dict)  # candidates, and why

    def right(self, head: str) -> Tensor:
        """Return whether a head is right (m,) on all held-out rows, one split after another."""
        return torch.cat(self.verdicts[head].answers) == torch.cat(self.held_y)


def judge(
    stream: Stream,
    heads: Sequence[str] | None = None,
    *,
    seed: int = 0,
    splits: Sequence[Split] | None = None,
    vectors_of: frozenset[str] = frozenset(),
    rates: Mapping[str, float | None] | None = None,
    curves: bool = True,
    progress: Tell | None = None,
) -> Judgement:
    """Let candidates learn the stream, and record their predictions for the held-out rows.

    Without ``heads`` all are candidates, and wider maps where there are enough rows and the time
    is short. ``seed`` decides which rows are held out, unless ``splits`` says. Of heads trained by
    gradient, those in ``vectors_of`` keep their output vectors, and learning rates that are not in
    ``rates`` are looked for. ``curves`` scores heads along the stream too, in as many splits as
    make 400 rows, and times their predictions; one that is slow to solve is scored at the end
    alone.

    >>> import lastlayer as ll
    >>> from lastlayer.evaluate.stream import lay_out
    >>> stream = lay_out(ll.load_features("cifar10"), "cifar10")
    >>> judgement = judge(stream, ["mean", "slda"])
    >>> [round(float(judgement.right(head).double().mean()), 2) for head in judgement.verdicts]
    [0.63, 0.67]
    """
    names = list(dict.fromkeys((*all_heads(), *WIDER) if heads is None else heads))
    parts = _with_checkpoints(
        stream, splits_of(stream, seed) if splits is None else splits, vectors_of, curves
    )
    known = {name: rate for name, rate in (rates or {}).items() if rate is not None}
    left_out = _left_out(stream, parts[0], names, rates_known=bool(rates))
    if heads is None:
        names = [name for name in names if parts[0].n >= WIDER.get(name, 0)]
        left_out |= _too_slow(stream, names) | _too_wide(stream, parts[0])
    names = [name for name in names if name not in left_out]
    rated = [name for name in names if card_of(name).by_gradient and name not in known]
    work = sum(
        _cost(name, stream, part) * (1 + RATING * (name in rated))
        for name in names
        for part in parts
    )
    meter = Meter(round(work), progress)
    scale = feature_scale(stream.z, stream.rows, NORM)
    shown = _learn_once(stream, parts, names, meter, timed=curves)
    found, lr = _train(stream, parts, names, known, seed, scale, meter)
    shown |= found
    left_out |= {name: own[0] for name, own in shown.items() if isinstance(own[0], str)}
    return Judgement(
        {
            name: replace(
                _joined(shown[name]),
                lr=lr.get(name),
                latency=latency_of(name, stream, shown[name][0]) if curves else math.nan,
            )
            for name in names
            if name not in left_out
        },
        parts,
        tuple(stream.y[part.held] for part in parts),
        parts[0].checkpoints,
        _come(stream, parts),
        scale,
        epochs_for(stream.tasks),
        left_out,
    )


def _with_checkpoints(
    stream: Stream, splits: Sequence[Split], vectors_of: frozenset[str], curves: bool
) -> list[Split]:
    """Return the splits with the tasks after which heads are scored: in the first ones, several."""
    last = (stream.n_tasks - 1,)
    points = checkpoints_of(stream.n_tasks) if curves else last
    scored = math.ceil(CURVE_ROWS / max(len(splits[0].held), 1))
    return [
        replace(
            split,
            checkpoints=points if number < scored else last,
            vectors_of=frozenset() if number else vectors_of,
        )
        for number, split in enumerate(splits)
    ]


def checkpoints_of(n_tasks: int) -> tuple[int, ...]:
    """Return the tasks after which heads are scored: at most ten, evenly spread, with the last.

    >>> checkpoints_of(3), checkpoints_of(100)[:3], checkpoints_of(100)[-1]
    ((0, 1, 2), (9, 19, 29), 99)
    """
    n = min(n_tasks, CHECKPOINTS)
    return tuple(round((i + 1) * n_tasks / n) - 1 for i in range(n))


def _left_out(
    stream: Stream, split: Split, heads: Sequence[str], *, rates_known: bool
) -> dict[str, str]:
    """Return the heads that would take too much time or memory, and why they are left out."""
    n, h = len(stream.rows), stream.z.shape[1]
    found = {}
    by_gradient = [name for name in heads if card_of(name).by_gradient]
    # Where rates are known, they were found by training on nearly as many rows.
    if by_gradient and not rates_known and too_large(stream, split, len(by_gradient)):
        size = f"{n} rows × {h} features of {stream.n_classes} classes"
        found = dict.fromkeys(by_gradient, f"{size} are too many to train it on this machine")
    for name in (name for name in heads if card_of(name).abilities.keeps_samples):
        kept = card_of(name).size(h, stream.n_classes, n)
        most = card_of(name).most_rows
        if most is not None and n > most:
            found[name] = f"it takes at most {most} rows by default, and there are {n}"
        elif kept > costs.KEPT:
            found[name] = f"it would keep {size_in_words(kept)} of rows: too much to judge it"
    return found


def _too_wide(stream: Stream, split: Split) -> dict[str, str]:
    """Return the wider heads that are worth a try, but not the wait, and what they would cost."""
    found, speed = {}, 0.0
    for name in (name for name, rows in WIDER.items() if split.n >= rows):
        work = _cost(name, stream, _once(split))
        if work > WIDEST:
            speed = speed or costs.measured_speed(torch.device("cpu"))
            size = card_of(name).size(stream.z.shape[1], stream.n_classes, len(stream.rows))
            minutes = max(round(work / speed / 60), 1)
            found[name] = (
                f"judging it would take some {minutes} min of one core, and it keeps "
                f"{size_in_words(size)}; ask for it with --heads"
            )
    return found


def _too_slow(stream: Stream, heads: Sequence[str]) -> dict[str, str]:
    """Return the heads that keep no rows, and yet take longer to solve than to judge all others."""
    h, n = stream.z.shape[1], len(stream.rows)
    slow = [
        name
        for name, card in ((name, card_of(name)) for name in heads)
        if not (card.by_gradient or card.abilities.keeps_samples)
        and card.refresh(h, stream.n_classes, n) > SOLVED
    ]
    why = f"with {h} features it takes longer to solve than all others to judge"
    return dict.fromkeys(slow, f"{why}; ask for it with --heads")


def _learn_once(
    stream: Stream, splits: Sequence[Split], names: Sequence[str], meter: Meter, *, timed: bool
) -> dict[str, list[Any]]:
    """Return the verdicts of the heads without gradient, or why one is not judged, on each split.

    Where there are several splits, a head that takes long to learn is judged on the others only if
    the first does not show it to be behind.
    """
    heads = [name for name in names if not card_of(name).by_gradient]
    slow = {name for name in heads if _cost(name, stream, _once(splits[-1])) > SLOW}
    cost = {
        (n, name): _cost(name, stream, _once(split) if name in slow else split)
        for n, split in enumerate(splits)
        for name in heads
    }

    def learn(asked: Sequence[tuple[int, str]]) -> Found:
        pieces = [
            (
                partial(
                    _feed, stream, splits[n], n, name, timed=timed and not n, once=name in slow
                ),
                cost[n, name],
            )
            for n, name in asked
        ]
        return _run(pieces, meter)

    done = learn([(n, name) for n, name in cost if n == 0 or name not in slow])
    behind = _behind(stream, splits[0], done, slow)
    later = [(n, name) for n, name in cost if (n, name) not in done]
    meter.drop(round(sum(cost[n, name] for n, name in later if name in behind)))
    done |= learn([(n, name) for n, name in later if name not in behind])
    found = {}
    for name in heads:
        own = [done.get((n, name), behind.get(name)) for n in range(len(splits))]
        found[name] = [v for v in own if isinstance(v, str)] or own
    return found


def _once(split: Split) -> Split:
    """Return the split, scored at its end alone."""
    return replace(split, checkpoints=split.checkpoints[-1:])


def _behind(stream: Stream, split: Split, done: Found, slow: Set[str]) -> dict[str, str]:
    """Return the slow heads that a split shows to be behind one that can do as much, and why."""
    y = stream.y[split.held]
    right = {
        name: (verdict.answers[0] == y).double()
        for (n, name), verdict in done.items()
        if n == 0 and not isinstance(verdict, str)
    }
    found = {}
    for name in slow & right.keys():
        rivals = [other for other in right if _stands_in(other, name, stream)]
        best = max(rivals, key=lambda other: float(right[other].mean()))
        lost = right[best] - right[name]
        if float(lost.mean()) > SURE * float(lost.std()) / math.sqrt(len(lost)):
            found[name] = (
                f"slow to learn, and on the first {len(y)} held-out rows {best} is right "
                f"{100 * float(lost.mean()):.1f} points more often"
            )
    return found


def _stands_in(other: str, name: str, stream: Stream) -> bool:
    """Return whether a head meets every constraint that another one meets."""
    size = stream.z.shape[1], stream.n_classes, len(stream.rows)
    one, two = card_of(other), card_of(name)
    can, could = one.abilities, two.abilities
    return (
        (can.linear or not could.linear)
        and (can.forgets or not could.forgets)
        and (could.keeps_samples or not can.keeps_samples)
        and one.size(*size) <= two.size(*size)
    )


def _train(
    stream: Stream,
    splits: Sequence[Split],
    names: Sequence[str],
    known: Mapping[str, float],
    seed: int,
    scale: float,
    meter: Meter,
) -> tuple[dict[str, list[Verdict]], dict[str, float]]:
    """Return the verdicts of the heads that need gradients on each split, and their best rates."""
    heads = [name for name in names if card_of(name).by_gradient]
    if not heads:
        return {}, {}
    whole = sum(_cost(name, stream, split) for name in heads for split in splits)
    stream = replace(stream, z=stream.z.float() / scale)
    splits = [
        split if split.held_z is None else replace(split, held_z=split.held_z.float() / scale)
        for split in splits
    ]
    unknown = [name for name in heads if name not in known]
    rating = find_rates(stream, splits, unknown, seed) if unknown else []
    rated = _run([(piece, RATING * whole / len(rating)) for piece in rating], meter)

    def rate(name: str, numbers: Sequence[int]) -> float:
        return known.get(name) or best_rate(rated, name, numbers)

    everywhere = range(len(splits))
    pairs = [[(name, rate(name, [s])) for name in heads] for s in everywhere]
    groups = fleets(stream, splits, pairs[0])
    pieces: list[Piece] = []
    for numbers, members in groups:
        own = [[pairs[s][k] for k in members] for s in numbers]
        pieces.append((partial(_train_fleet, stream, splits, numbers, own), whole / len(groups)))
    found = _run(pieces, meter)
    verdicts = {name: [found[s, name] for s in everywhere] for name in heads}
    return verdicts, {name: rate(name, everywhere) for name in heads}


def _train_fleet(
    stream: Stream, splits: Sequence[Split], numbers: Sequence[int], pairs: Sequence[Sequence[Pair]]
) -> Found:
    verdicts = train_candidates(stream, [splits[s] for s in numbers], pairs)
    return {
        (s, verdict.head): verdict
        for s, of_split in zip(numbers, verdicts, strict=True)
        for verdict in of_split
    }


def _run(pieces: Sequence[Piece], meter: Meter) -> Found:
    """Do pieces of work in threads of one core each, the costliest first; return all they found."""
    pieces = sorted(pieces, key=lambda piece: -piece[1])
    found: Found = {}
    with one_core_each(thread_count(torch.device("cpu"))) as pool:
        done = pool.map(lambda piece: piece[0](), pieces)
        for (_, cost), own in zip(pieces, done, strict=True):
            found |= own
            meter.add(round(cost))
    return found


def _cost(head: str, stream: Stream, split: Split) -> float:
    """Estimate the multiplications of judging a head on a split."""
    return costs.cost(
        head,
        stream.z.shape[1],
        stream.n_classes,
        split.n,
        len(split.held),
        visits=split.n * epochs_for(split.tasks),
        answers=len(split.checkpoints),
    )


def _joined(parts: Sequence[Verdict]) -> Verdict:
    """Return what a candidate has shown over all splits; a count is missing if any of it is."""
    first = parts[0]
    counts = torch.stack([part.right for part in parts if len(part.right) == len(first.right)])
    right = counts.sum(0).masked_fill((counts < 0).any(0), -1)
    answers = tuple(part.answers[0] for part in parts)
    return replace(first, answers=answers, right=right, learned=None)


def _come(stream: Stream, splits: Sequence[Split]) -> Tensor:
    """Count the held-out rows of the tasks up to each checkpoint, over the splits that show it."""
    points = splits[0].checkpoints
    counts = torch.zeros(len(points), dtype=torch.int64)
    for split in (split for split in splits if split.checkpoints == points):
        tasks = split.task_in(stream)
        counts += torch.stack([(tasks <= point).sum() for point in points])
    return counts


def _feed(
    stream: Stream, split: Split, number: int, name: str, *, timed: bool, once: bool = False
) -> Found:
    """Let a head without gradients learn a split; return its verdict, or why it cannot learn.

    ``once``: it is scored at its end alone, since solving it takes long.

    To be timed, a small head is kept. A large one is timed here, beside others at work: to learn it
    again would take longer than all the rest.
    """
    try:
        head = make_head(name, stream.z.shape[1], stream.n_classes)
        held = split.held_of(stream.z).float()
        predict = head.predictor(held)
        right, answers, spent = [], torch.full((len(held),), -1), 0.0
        for task, rows in enumerate(split.tasks):
            learn_rows(head, stream.z, stream.y, rows.split(BATCH))
            if task not in split.checkpoints:
                continue
            if (once or spent > SCORING) and task != split.checkpoints[-1]:
                right.append(torch.tensor(-1))
                continue
            began = time.perf_counter()
            answers = predict() if bool(head.seen.any()) else answers
            spent += time.perf_counter() - began
            right.append(count_right(stream, split, answers, task))
        verdict, card = Verdict(name, (answers,), torch.stack(right)), card_of(name)
        solves_rows = card.most_rows is not None  # and to solve them again takes too long
        if timed and (solves_rows or not card.abilities.keeps_samples):
            small = (
                not solves_rows and card.size(head.in_features, head.n_classes, split.n) <= SMALL
            )
            verdict = (
                replace(verdict, learned=head)
                if small
                else replace(verdict, latency=_time_one(head, held[:1]))
            )
        return {(number, name): verdict}
    except LastLayerError as error:
        return {(number, name): str(error)}


def latency_of(name: str, stream: Stream, shown: Verdict) -> float:
    """Return the median seconds of a head's single prediction, with all classes known.

    A head that keeps samples has to know all rows. The others are equally fast whatever they know,
    so one that has already learned is used as it is.
    """
    if not math.isnan(shown.latency):
        return shown.latency
    head = shown.learned
    if head is None:
        head = make_head(name, stream.z.shape[1], stream.n_classes)
        rows = stream.rows if card_of(name).abilities.keeps_samples else stream.rows[:BATCH]
        learn_rows(head, stream.z, stream.y, rows.split(BATCH))
    head.seen.fill_(True)
    return _time_one(head, stream.z[stream.rows[:1]])


def _time_one(head: Head, one: Tensor) -> float:
    one = one.float()
    head.predict(one)
    times = []
    for _ in range(TIMED):
        start = time.perf_counter()
        head.predict(one)
        times.append(time.perf_counter() - start)
    return median(times)
