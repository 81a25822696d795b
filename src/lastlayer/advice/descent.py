"""Candidates trained by gradient: fleets on scaled features, each with the rate that suits it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lastlayer.advice.split import PART, Split, hold_out
from lastlayer.catalogue import card_of, split_name
from lastlayer.heads import Head
from lastlayer.heads.gradient.members import Members
from lastlayer.training.batches import BATCH_SIZE
from lastlayer.training.fleet import EVALUATE, Member, launch
from lastlayer.training.lockstep import epoch_of_batches
from lastlayer.training.plan import CACHE, Job, default_memory, member_bytes, plan
from lastlayer.training.pool import Pool, Rules, Stream, Vectors
from lastlayer.training.stepper import Stepper

NORM = 16.0  # the root mean square norm of features that the rates on the cards are for
RATES = (1.0, 5.0, 0.2, 25.0, 0.04)  # times the card's; of equally good ones the first is taken
EPOCHS, STEPS, STEPS_OF_TASK = 5, 200, 10  # at least
GRID_WORK = 4e12  # multiplications that finding the rates may take; streams are thinned to fit
WORK = 4e13  # multiplications that training may take; beyond it such heads are left out
LARGEST = 64 << 20  # bytes that one head may take in training
ROOM = 2 << 30  # bytes that all rows may take, scaled for training or kept by a head


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of one head on one split."""

    answers: Tensor  # (m,) int64, the class of each held-out row at the end; −1: it cannot say
    right: Tensor  # (checkpoints,) right answers on held-out rows of what has come by then
    vectors: Vectors | None = None  # at the checkpoints, where they were asked for
    head: Head | None = None  # itself, where it is at hand and small
    latency: float = math.nan  # seconds of one prediction, where it is at hand and large


@dataclass(frozen=True, eq=False)
class Trial:
    """One split with everything that training on it needs."""

    pool: Pool  # all rows, scaled
    split: Split
    task: Tensor  # (n,) of each row
    checkpoints: tuple[int, ...]  # after which tasks heads are looked at; the last one is the last
    vectors_of: frozenset[str] = field(default_factory=frozenset)
    group: Tensor | None = None  # (n,) the source of each row

    @property
    def n(self) -> int:
        """The number of rows that are learned from."""
        return sum(map(len, self.split.tasks))


def epochs_for(sizes: Sequence[int], batch_size: int = BATCH_SIZE) -> int:
    """Return the epochs of a task: five, or more where that makes only a few steps.

    >>> epochs_for([1200] * 10), epochs_for([40] * 10), epochs_for([80] * 150)
    (5, 20, 10)
    """
    steps = [math.ceil(size / batch_size) for size in sizes if size]
    in_all, least = sum(steps), sum(steps) / max(len(steps), 1)
    return max(EPOCHS, math.ceil(STEPS / max(in_all, 1)), math.ceil(STEPS_OF_TASK / max(least, 1)))


def work_of(trial: Trial) -> float:
    """Estimate the multiplications that training one head on a split takes."""
    h = trial.pool.z.shape[1]
    return (
        4.0
        * trial.n
        * epochs_for([len(rows) for rows in trial.split.tasks])
        * (trial.pool.n_classes * h)
    )


def too_large(trial: Trial, heads: int) -> bool:
    """Return whether heads trained by gradient would take too much memory or time here."""
    rules = Rules(batch_size=BATCH_SIZE)
    large = member_bytes(trial.pool, rules) > LARGEST or 4 * trial.pool.z.numel() > ROOM
    return large or heads * work_of(trial) > WORK


def thinned(trial: Trial, n_heads: int, seed: int = 0) -> Trial:
    """Hold out a part of the rows to choose learning rates by, and thin rows if there are many."""
    rows = torch.cat(trial.split.tasks)
    y, task = trial.pool.y[rows], trial.task[rows]
    group = None if trial.group is None else trial.group[rows]
    held = hold_out(y, task, group, part=PART, turn=0, seed=seed)
    share = GRID_WORK / (n_heads * len(RATES) * max(work_of(trial), 1.0))
    kept = ~held
    if share < 1:
        kept = hold_out(y, task, None, part=share, turn=0, seed=seed + 1) & kept
    left = torch.zeros(len(trial.pool.y), dtype=torch.bool)
    left[rows[kept]] = True
    tasks = tuple(part[left[part]] for part in trial.split.tasks)
    last = (len(tasks) - 1,)
    split = Split(tasks, rows[held])
    return replace(trial, split=split, checkpoints=last, vectors_of=frozenset())


Pair = tuple[str, float]  # a head and its learning rate
Rated = dict[tuple[int, str, float], float]  # split, head and rate → share right


def find_rates(
    trials: Sequence[Trial], heads: Sequence[str], seed: int = 0
) -> list[Callable[[], Rated]]:
    """Return the pieces of work that score each head with each rate on inner splits."""
    inner = [thinned(trial, len(trials) * len(heads), seed) for trial in trials]
    pairs = [(head, card_of(head).rate(None) * factor) for head in heads for factor in RATES]

    def rate(splits: Sequence[int], members: Sequence[int]) -> Rated:
        own = [pairs[k] for k in members]
        found: Rated = {}
        outcomes = sail([inner[s] for s in splits], [own] * len(splits))
        for s, of_split in zip(splits, outcomes, strict=True):
            y = inner[s].pool.y[inner[s].split.held]
            for pair, outcome in zip(own, of_split, strict=True):
                found[s, *pair] = float((outcome.answers == y).double().mean())
        return found

    return [partial(rate, *fleet) for fleet in fleets(inner, pairs)]


def best_rate(rated: Rated, head: str, splits: Sequence[int]) -> float:
    """Return the rate with which a head was right most often, over some splits."""
    rates = [card_of(head).rate(None) * factor for factor in RATES]
    return max(rates, key=lambda rate: sum(rated[s, head, rate] for s in splits))


def fleets(trials: Sequence[Trial], pairs: Sequence[Pair]) -> list[tuple[list[int], list[int]]]:
    """Group splits and heads into fleets that stay in the cache: (splits, members) of each."""
    pool, rules = trials[0].pool, Rules()
    stream = Stream(tuple(rows for rows in trials[0].split.tasks if len(rows)))
    jobs = [Job(stream, _member(*pair)) for pair in pairs]
    planned = plan(jobs, pool, rules, default_memory(pool.z.device) // 2)
    found = []
    for members in (numbers for fleet in planned for numbers in fleet.jobs):
        size = max(1, CACHE // (len(members) * member_bytes(pool, rules)))
        for start in range(0, len(trials), size):
            found.append((list(range(len(trials)))[start : start + size], members))
    return found


def sail(trials: Sequence[Trial], pairs: Sequence[Sequence[Pair]]) -> list[list[Outcome]]:
    """Train ``pairs[s]`` on the split ``trials[s]``, all side by side, and score them on the way.

    The heads must be the same for all splits; their rates may differ.
    """
    pool = trials[0].pool
    fleet = launch(pool, [[_member(*pair) for pair in own] for own in pairs], "exact")
    step = Stepper(fleet, pool)
    epochs = epochs_for([len(rows) for rows in trials[0].split.tasks])
    rules = Rules(epochs=epochs, skip_single=False)
    points = {point for trial in trials for point in trial.checkpoints}
    seen: dict[int, Tensor] = {}  # answers (S, K, m) at each checkpoint
    wanted = [k for k, pair in enumerate(pairs[0]) if pair[0] in trials[0].vectors_of]
    vectors: list[list[Tensor]] = []  # of those heads only
    for task in range(len(trials[0].split.tasks)):
        streams = [Stream((trial.split.tasks[task],)) for trial in trials]
        generators = [torch.Generator().manual_seed(task) for _ in trials]
        empty = not any(len(trial.split.tasks[task]) for trial in trials)  # all are held out
        for _ in range(0 if empty else epochs):
            for rows, share in epoch_of_batches(streams, 0, rules, generators, pool.z.device):
                step(rows, share)
        fleet.mark_diverged()
        if task in points:
            seen[task] = _answers(fleet, trials)
            if wanted:
                vectors.append([part[:, wanted] for part in fleet.vectors()])
    return [
        [
            _outcome(
                trials[s],
                [seen[point][s, k] for point in trials[s].checkpoints],
                [[part[s, wanted.index(k)] for part in parts] for parts in vectors]
                if k in wanted and trials[s].vectors_of
                else [],
            )
            for k in range(len(own))
        ]
        for s, own in enumerate(pairs)
    ]


def _outcome(trial: Trial, seen: list[Tensor], vectors: list[list[Tensor]]) -> Outcome:
    """Assemble the outcome of one head; answers are padded beyond the split's own rows."""
    m = len(trial.split.held)
    points = zip(trial.checkpoints, seen, strict=True)
    right = torch.stack([count_right(trial, answers[:m], task) for task, answers in points])
    kept = None
    if vectors:
        kept = Vectors(*(torch.stack(parts) for parts in zip(*vectors, strict=True)))
    return Outcome(seen[-1][:m], right, kept)


def count_right(trial: Trial, answers: Tensor, task: int) -> Tensor:
    """Count the right answers (…,) on held-out rows of the tasks so far; answers are (…, m)."""
    held = trial.split.held
    come = trial.task[held] <= task
    return ((answers == trial.pool.y[held]) & come).sum(dim=-1)


def _answers(fleet: Members, trials: Sequence[Trial]) -> Tensor:
    """Return the class (S, K, m) that members predict for held-out rows, padded; −1: diverged."""
    rows, _ = fleet.rows()
    streams, members, n_classes, _ = rows.shape
    features = trials[0].pool.z
    held = pad_sequence([trial.split.held for trial in trials], batch_first=True)
    if (own := trials[0].split.held_z) is not None:  # then there is one split
        features, held = own, torch.arange(len(own))[None]
    chunk = max(EVALUATE["cpu"] // (streams * members * n_classes), 16)
    found = []
    for part in held.split(chunk, dim=1):
        z = features[part]
        scores = fleet.scores(z, rows, fleet.inverse_input(z))
        if fleet.seen is not None:
            scores.masked_fill_((fleet.seen == 0)[:, None, :, None], -torch.inf)
        found.append(scores.argmax(dim=2))
    answers = torch.cat(found, dim=2)
    answers[fleet.diverged >= 0] = -1
    return answers


def _member(head: str, rate: float) -> Member:
    layer, mask = split_name(head)
    return Member(layer, mask, rate)
