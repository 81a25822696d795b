"""Candidates trained by gradient: fleets on scaled features, each with the rate that suits it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lastlayer.advice.split import PART, Split, hold_out
from lastlayer.catalogue import card_of, split_name
from lastlayer.heads.gradient.members import Members
from lastlayer.training.batches import BATCH_SIZE
from lastlayer.training.fleet import EVALUATE, Member, launch
from lastlayer.training.lockstep import epoch_of_batches
from lastlayer.training.plan import Job, default_memory, member_bytes, plan
from lastlayer.training.pool import Pool, Rules, Stream, Vectors
from lastlayer.training.stepper import Stepper

NORM = 16.0  # the root mean square norm of features that the rates on the cards are for
RATES = (1.0, 5.0, 0.2, 25.0, 0.04)  # times the card's; of equally good ones the first is taken
EPOCHS, STEPS, STEPS_OF_TASK = 5, 200, 10  # at least
GRID_WORK = 4e12  # multiplications that finding the rates may take; streams are thinned to fit
WORK = 4e13  # multiplications that training may take; beyond it such heads are left out
LARGEST = 256 << 20  # bytes that one head may take in training

Told = Callable[[float], None]  # takes work done


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of one head on one split."""

    answers: Tensor  # (m,) int64, the class of each held-out row at the end; −1: it cannot say
    right: Tensor  # (checkpoints,) right answers on held-out rows of what has come by then
    vectors: Vectors | None = None  # at the checkpoints, where they were asked for


@dataclass(frozen=True, eq=False)
class Trial:
    """One split with everything that training on it needs."""

    pool: Pool  # all rows, scaled
    split: Split
    task: Tensor  # (n,) of each row
    checkpoints: tuple[int, ...]  # after which tasks heads are looked at; the last one is the last
    vectors_of: frozenset[str] = field(default_factory=frozenset)

    @property
    def n(self) -> int:
        """How many rows are learned from."""
        return sum(map(len, self.split.tasks))


def epochs_for(sizes: Sequence[int], batch_size: int = BATCH_SIZE) -> int:
    """Return how often a task is shown: five times, or more often where that makes few steps.

    >>> epochs_for([1200] * 10), epochs_for([40] * 10), epochs_for([80] * 150)
    (5, 20, 10)
    """
    steps = [math.ceil(size / batch_size) for size in sizes if size]
    in_all, least = sum(steps), sum(steps) / max(len(steps), 1)
    return max(EPOCHS, math.ceil(STEPS / max(in_all, 1)), math.ceil(STEPS_OF_TASK / max(least, 1)))


def work_of(trial: Trial) -> float:
    """Estimate the multiplications that training one head on a split takes."""
    h = trial.pool.z.shape[1]
    return 4.0 * trial.n * epochs_for([len(rows) for rows in trial.split.tasks]) * (
        trial.pool.n_classes * h
    )


def too_large(trial: Trial, heads: int) -> bool:
    """Say whether heads trained by gradient would take too much memory or time here."""
    rules = Rules(batch_size=BATCH_SIZE)
    return member_bytes(trial.pool, rules) > LARGEST or heads * work_of(trial) > WORK


def thinned(trial: Trial, n_heads: int, seed: int = 0) -> Trial:
    """Hold out a part of the rows that are learned from, to find rates by; thin what is too much."""
    rows = torch.cat(trial.split.tasks)
    y, task = trial.pool.y[rows], trial.task[rows]
    held = hold_out(y, task, None, part=PART, turn=0, seed=seed)
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


def find_rates(trial: Trial, heads: Sequence[str], seed: int = 0) -> "list[Callable[[], Rated]]":
    """Give the pieces of work that tell how right each head is with each rate, on an inner split.

    Each piece returns {(head, rate): share right}.
    """
    inner = thinned(trial, len(heads), seed)
    pairs = [(head, card_of(head).rate(None) * factor) for head in heads for factor in RATES]

    def rate(numbers: list[int]) -> Rated:
        outcomes = sail(inner, [pairs[i] for i in numbers])
        y = inner.pool.y[inner.split.held]
        shares = [float((outcome.answers == y).double().mean()) for outcome in outcomes]
        return {pairs[i]: share for i, share in zip(numbers, shares, strict=True)}

    return [_piece(rate, numbers) for numbers in fleets(inner, pairs)]


Rated = dict[tuple[str, float], float]


def _piece(rate: Callable[[list[int]], Rated], numbers: list[int]) -> Callable[[], Rated]:
    return lambda: rate(numbers)


def best_rate(rated: Sequence[Rated], head: str) -> float:
    """Return the rate with which a head was right most often over all splits."""
    own = card_of(head).rate(None)
    rates = [own * factor for factor in RATES]
    return max(rates, key=lambda rate: sum(of_split[head, rate] for of_split in rated))


def fleets(trial: Trial, pairs: Sequence[tuple[str, float]]) -> list[list[int]]:
    """Group heads with their rates into fleets that fit the memory."""
    stream = Stream(tuple(rows for rows in trial.split.tasks if len(rows)))
    jobs = [Job(stream, _member(*pair)) for pair in pairs]
    planned = plan(jobs, trial.pool, Rules(), default_memory(trial.pool.z.device) // 2)
    return [numbers for fleet in planned for numbers in fleet.jobs]


def sail(
    trial: Trial, pairs: Sequence[tuple[str, float]], told: Told | None = None
) -> list[Outcome]:
    """Train heads with their rates side by side on one split, and look at them on the way."""
    fleet = launch(trial.pool, [[_member(*pair) for pair in pairs]], "exact")
    step = Stepper(fleet, trial.pool)
    epochs = epochs_for([len(rows) for rows in trial.split.tasks])
    rules = Rules(epochs=epochs, skip_single=False)
    device = trial.pool.z.device
    right, vectors = [], []
    answers = torch.full((len(pairs), len(trial.split.held)), -1)
    for number, rows in enumerate(trial.split.tasks):
        if len(rows):
            stream, generator = Stream((rows,)), torch.Generator().manual_seed(number)
            for _ in range(epochs):
                for batch, share in epoch_of_batches([stream], 0, rules, [generator], device):
                    step(batch, share)
            fleet.mark_diverged()
        if number in trial.checkpoints:
            answers = _answers(fleet, trial)
            right.append(count_right(trial, answers, number))
            vectors.append([part[0].cpu() for part in fleet.vectors()])
        if told is not None:
            told(len(rows) / max(trial.n, 1))
    return [
        Outcome(answers[k], torch.stack([counts[k] for counts in right]), _kept(trial, pair, k, vectors))
        for k, pair in enumerate(pairs)
    ]


def _kept(
    trial: Trial, pair: tuple[str, float], k: int, vectors: list[list[Tensor]]
) -> Vectors | None:
    if pair[0] not in trial.vectors_of:
        return None
    return Vectors(*(torch.stack(parts) for parts in zip(*[[p[k] for p in v] for v in vectors])))


def count_right(trial: Trial, answers: Tensor, task: int) -> Tensor:
    """Count the right answers (…,) on the held-out rows of the tasks up to one; answers (…, m)."""
    held = trial.split.held
    come = trial.task[held] <= task
    return ((answers == trial.pool.y[held]) & come).sum(dim=-1)


def _answers(fleet: Members, trial: Trial) -> Tensor:
    """Give the class (K, m) that each member answers for the held-out rows; −1: it diverged."""
    rows, _ = fleet.rows()
    _, members, n_classes, _ = rows.shape
    chunk = max(EVALUATE["cpu"] // (members * n_classes), 16)
    found = []
    for part in trial.split.held.split(chunk):
        z = trial.pool.z[part]
        scores = fleet.scores(z, rows, fleet.inverse_input(z))
        if fleet.seen is not None:
            scores.masked_fill_((fleet.seen == 0)[:, None, :, None], -torch.inf)
        found.append(scores[0].argmax(dim=1))
    answers = torch.cat(found, dim=1)
    answers[fleet.diverged[0] >= 0] = -1
    return answers


def _member(head: str, rate: float) -> Member:
    layer, mask = split_name(head)
    return Member(layer, mask, rate)
