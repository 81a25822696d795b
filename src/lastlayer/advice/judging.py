"""Judging: every candidate learns the stream from part of the rows and predicts the rest."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from lastlayer.advice.course import Course, feature_scale
from lastlayer.advice.descent import (
    NORM,
    ROOM,
    Outcome,
    Pair,
    Trial,
    best_rate,
    count_right,
    epochs_for,
    find_rates,
    fleets,
    sail,
    too_large,
    work_of,
)
from lastlayer.advice.split import Split, splits_of
from lastlayer.catalogue import all_heads, card_of, size_in_words
from lastlayer.errors import LastLayerError
from lastlayer.heads import Head, make_head
from lastlayer.threads import one_core_each, thread_count
from lastlayer.training.pool import Pool, Vectors

CHECKPOINTS = 10  # at most so often is a head looked at on its way
LOOKING = 2.0  # seconds after which a head is looked at no more before the end
CURVE_ROWS = 500  # held-out rows that make a curve: to look at heads costs some of them seconds
BATCH = 4096  # rows that a head without gradient is given at once
LOGITS = 1 << 22  # at a time
KEPT = 64 << 20  # bytes of a head that is kept until its time for one answer is taken in peace
TIMED = 31  # single predictions, of whose times the median is taken
SUITED = 3.0  # heads without gradients cost about this many times their multiplications

Progress = Callable[[float, float], None]  # takes the work done and all there is


@dataclass(frozen=True, eq=False)
class Verdict:
    """What one candidate has shown."""

    head: str  # with its mask
    answers: tuple[Tensor, ...]  # of each split, (m,) the class of each held-out row; −1: none
    right: Tensor  # (checkpoints,) right answers on the way, over the splits that show it; −1: none
    lr: float | None = None  # the rate to train it with; None: it needs none
    latency: float = math.nan  # seconds that one prediction takes, the median
    vectors: Vectors | None = None  # of the first split, at the checkpoints


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


def judge(
    course: Course,
    heads: Sequence[str] | None = None,
    *,
    seed: int = 0,
    splits: Sequence[Split] | None = None,
    vectors_of: frozenset[str] = frozenset(),
    rates: Mapping[str, float | None] | None = None,
    curves: bool = True,
    progress: Progress | None = None,
) -> Judgement:
    """Let candidates learn the stream, and record their predictions for the held-out rows.

    Args:
        course: the stream.
        heads: the candidates; None: all heads.
        seed: decides which rows are held out.
        splits: the splits to use instead.
        vectors_of: heads trained by gradient whose output vectors are kept.
        rates: learning rates that are already known; None: find them.
        curves: whether to score heads along the stream too, in as many splits as make 500 rows,
            and to time their predictions.
        progress: called with the work done and the total.

    >>> import lastlayer as ll
    >>> from lastlayer.advice.course import lay_out
    >>> course = lay_out(ll.load_features("cifar10"), "cifar10")
    >>> judgement = judge(course, ["mean", "slda"])
    >>> [round(share_right(judgement, head), 2) for head in judgement.verdicts]
    [0.63, 0.67]
    """
    names = list(dict.fromkeys(all_heads() if heads is None else heads))
    parts = list(splits_of(course, seed) if splits is None else splits)
    scale = feature_scale(course.z, course.rows, NORM)
    trials = _trials(course, parts, vectors_of, curves)
    by_gradient = [name for name in names if card_of(name).by_gradient]
    left_out: dict[str, str] = {}
    # Where rates are known, they were found by training on nearly as many rows.
    if by_gradient and not rates and too_large(trials[0], len(by_gradient)):
        n, h = len(course.rows), course.z.shape[1]
        size = f"{n} rows × {h} features of {course.n_classes} classes"
        left_out |= dict.fromkeys(by_gradient, f"{size} are too many to train it on this machine")
        by_gradient = []
    others = [name for name in names if not card_of(name).by_gradient]
    left_out |= _keeping_too_much(course, others)
    others = [name for name in others if name not in left_out]
    work = Work(progress)
    fed = _feed_all(work, trials, others, timed=curves)
    if by_gradient:
        scaled = course.z.float() / scale
        trials = [_scaled(trial, scaled, scale) for trial in trials]
    shown, lr = _sail_all(work, trials, by_gradient, rates or {}, seed)
    for name, outcomes in fed.items():
        failed = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if failed:
            left_out[name] = failed[0]
        else:
            shown[name] = outcomes
    return Judgement(
        {
            name: _verdict(
                name,
                shown[name],
                lr.get(name),
                latency_of(name, course, shown[name][0]) if curves else math.nan,
            )
            for name in names
            if name in shown
        },
        parts,
        tuple(course.y[part.held] for part in parts),
        trials[0].checkpoints,
        _come(trials),
        scale,
        epochs_for([len(rows) for rows in course.tasks]),
        left_out,
    )


def _keeping_too_much(course: Course, heads: Sequence[str]) -> dict[str, str]:
    """Return the heads that would keep too much of the rows, and why they are left out."""
    found = {}
    for name in (name for name in heads if card_of(name).abilities.keeps_samples):
        kept = card_of(name).size(course.z.shape[1], course.n_classes, len(course.rows))
        if kept > ROOM:
            found[name] = f"it would keep {size_in_words(kept)} of rows: too much to judge it"
    return found


def _feed_all(
    work: "Work", trials: Sequence[Trial], heads: Sequence[str], *, timed: bool
) -> dict[str, list[Any]]:
    """Let the heads without gradient learn all splits."""
    for number, trial in enumerate(trials):
        for name in heads:
            feeding = partial(_feed, trial, name, timed=timed and not number)
            work.add((name, number), feeding, _effort(name, trial))
    done = work.run()  # in any order
    return {name: [done[name, number][0] for number in range(len(trials))] for name in heads}


def _sail_all(
    work: "Work",
    trials: Sequence[Trial],
    heads: Sequence[str],
    known: Mapping[str, float | None],
    seed: int,
) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """Train the heads that need gradients on all splits; also return each one's best rate."""
    if not heads:
        return {}, {}
    everywhere = range(len(trials))
    effort = sum(map(work_of, trials)) * len(heads)
    unknown = [name for name in heads if known.get(name) is None]
    for piece in (pieces := find_rates(trials, unknown, seed) if unknown else []):
        work.add("rates", piece, 5 * effort / len(pieces))
    rated = _merged(work.run().get("rates", ()))

    def rate(name: str, splits: Sequence[int]) -> float:
        return known.get(name) or best_rate(rated, name, splits)

    pairs = [[(name, rate(name, [s])) for name in heads] for s in everywhere]
    for splits, members in (groups := fleets(trials, pairs[0])):
        own = [[pairs[s][k] for k in members] for s in splits]
        sailing = partial(_sail, splits, [trials[s] for s in splits], own)
        work.add("fleets", sailing, effort / len(groups))
    sailed = _merged(work.run()["fleets"])
    outcomes = {name: [sailed[s, name] for s in everywhere] for name in heads}
    return outcomes, {name: rate(name, everywhere) for name in heads}


def _verdict(name: str, outcomes: Sequence[Outcome], lr: float | None, latency: float) -> Verdict:
    return Verdict(
        name,
        tuple(outcome.answers for outcome in outcomes),
        _added([o.right for o in outcomes if len(o.right) == len(outcomes[0].right)]),
        lr,
        latency,
        outcomes[0].vectors,
    )


def _added(parts: Sequence[Tensor]) -> Tensor:
    """Add counts; None if any of them is missing."""
    counts = torch.stack(list(parts))
    return counts.sum(0).masked_fill((counts < 0).any(0), -1)


def share_right(judgement: Judgement, head: str) -> float:
    """Return the share of right answers of a head on all held-out rows, over all splits."""
    pairs = zip(judgement.verdicts[head].answers, judgement.held_y, strict=True)
    right = [(answers == y).double() for answers, y in pairs]
    return float(torch.cat(right).mean())


def _trials(
    course: Course, splits: Sequence[Split], vectors_of: frozenset[str], curves: bool
) -> list[Trial]:
    pool = Pool(course.z, course.y, course.z[:0], course.y[:0], course.n_classes)
    points = checkpoints_of(course.n_tasks) if curves else ()
    looked_at = math.ceil(CURVE_ROWS / max(len(splits[0].held), 1))  # splits, the first ones
    last = (course.n_tasks - 1,)
    task = course.task_of
    return [
        Trial(
            pool,
            split,
            task,
            points if points and number < looked_at else last,
            vectors_of if not number else frozenset(),
            course.group,
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


def _scaled(trial: Trial, z: Tensor, scale: float) -> Trial:
    """Put scaled features in the place of a trial's."""
    own = trial.split.held_z
    split = trial.split if own is None else replace(trial.split, held_z=own.float() / scale)
    return replace(trial, pool=replace(trial.pool, z=z, test_z=z[:0]), split=split)


def _sail(
    splits: Sequence[int], trials: Sequence[Trial], pairs: Sequence[Sequence[Pair]]
) -> dict[tuple[int, str], Outcome]:
    outcomes = sail(trials, pairs)
    return {
        (s, head): outcome
        for s, own, of_split in zip(splits, pairs, outcomes, strict=True)
        for (head, _), outcome in zip(own, of_split, strict=True)
    }


def _merged(parts: Sequence[dict[Any, Any]]) -> dict[Any, Any]:
    return {key: value for part in parts for key, value in part.items()}


def _come(trials: Sequence[Trial]) -> Tensor:
    """Count the held-out rows of the tasks up to each checkpoint, over the splits that show it."""
    counts = torch.zeros(len(trials[0].checkpoints), dtype=torch.int64)
    for trial in (t for t in trials if t.checkpoints == trials[0].checkpoints):
        tasks = trial.task[trial.split.held]
        counts += torch.stack([(tasks <= point).sum() for point in trial.checkpoints])
    return counts


def _feed(trial: Trial, name: str, *, timed: bool) -> Outcome | str:
    """Let a head without gradients learn a split, or return the reason why it cannot.

    To be timed, a small head is kept. A large one is timed here, beside others at work: to learn it
    again would take longer than all the rest.
    """
    try:
        head = make_head(name, trial.pool.z.shape[1], trial.pool.n_classes)
        held = trial.split.held_of(trial.pool.z)
        answer = _answering(head, held)
        right, answers, spent = [], torch.full((len(trial.split.held),), -1), 0.0
        for number, rows in enumerate(trial.split.tasks):
            learn(head, trial.pool, rows)
            if number in trial.checkpoints:
                last = number == trial.checkpoints[-1]
                if spent > LOOKING and not last:
                    right.append(torch.tensor(-1))
                    continue
                began = time.perf_counter()
                answers = answer() if bool(head.seen.any()) else answers
                spent += time.perf_counter() - began
                right.append(count_right(trial, answers, number))
        outcome, card = Outcome(answers, torch.stack(right)), card_of(name)
        if not timed or card.abilities.keeps_samples:
            return outcome
        if card.size(head.in_features, head.n_classes, trial.n) <= KEPT:
            return replace(outcome, head=head)
        return replace(outcome, latency=_time_one(head, held[:1]))
    except LastLayerError as error:
        return str(error)


def learn(head: Head, pool: Pool, rows: Tensor) -> None:
    """Show rows once, in their order."""
    for part in rows.split(BATCH):
        if len(part):
            head.observe(pool.z[part].float(), pool.y[part])


def _answering(head: Head, z: Tensor) -> Callable[[], Tensor]:
    """Return a function that predicts fixed rows; for knn it looks only at new data."""
    follow = getattr(head, "follow", None)
    if follow is not None:
        followed = follow(z.float())
        return lambda: followed.logits().argmax(dim=-1)
    return lambda: answers_of(head, z)


def answers_of(head: Head, z: Tensor) -> Tensor:
    """Return the class (n,) that a head predicts for each row, in bounded memory."""
    size = max(LOGITS // max(head.n_classes, 1), 1)
    return torch.cat([head.predict(part.float()) for part in z.split(size)])


def latency_of(name: str, course: Course, shown: Outcome) -> float:
    """Return the median seconds of a head's single prediction, with all classes known.

    A head that keeps samples has to know all rows. The others are equally fast whatever they know,
    so one that has already learned is used as it is.
    """
    if not math.isnan(shown.latency):
        return shown.latency
    head = shown.head
    if head is None:
        head = make_head(name, course.z.shape[1], course.n_classes)
        rows = course.rows if card_of(name).abilities.keeps_samples else course.rows[:BATCH]
        learn(head, Pool(course.z, course.y, course.z[:0], course.y[:0], course.n_classes), rows)
    head.seen.fill_(True)
    return _time_one(head, course.z[course.rows[:1]])


def _time_one(head: Head, one: Tensor) -> float:
    one = one.float()
    head.predict(one)
    times = []
    for _ in range(TIMED):
        start = time.perf_counter()
        head.predict(one)
        times.append(time.perf_counter() - start)
    return median(times)


def _effort(name: str, trial: Trial) -> float:
    """Estimate the work of a head without gradients, in the multiplications of one with them."""
    h, n_classes, held = trial.pool.z.shape[1], trial.pool.n_classes, len(trial.split.held)
    state = card_of(name).size(h, n_classes, trial.n) / 8
    return SUITED * (2.0 * trial.n * h * min(h, 512) / 8 + held * state * 2)


class Work:
    """Pieces of work, done in threads of one core each, the longest first."""

    def __init__(self, progress: Progress | None) -> None:
        self._pieces: list[tuple[Any, Callable[[], Any], float]] = []
        self._progress = progress
        self._done = self._total = 0.0

    def add(self, key: Any, piece: Callable[[], Any], effort: float) -> None:
        """Add a piece of work; its result is stored under its key."""
        self._pieces.append((key, piece, effort))
        self._total += effort

    def run(self) -> dict[Any, list[Any]]:
        """Do all pieces added since the last call."""
        pieces = sorted(self._pieces, key=lambda piece: -piece[2])
        self._pieces = []
        found: dict[Any, list[Any]] = {}
        threads = thread_count(torch.device("cpu"))
        with one_core_each(threads) as pool:
            for (key, _, effort), result in zip(
                pieces, pool.map(lambda piece: piece[1](), pieces), strict=True
            ):
                found.setdefault(key, []).append(result)
                self._done += effort
                if self._progress is not None:
                    self._progress(self._done, self._total)
        return found
