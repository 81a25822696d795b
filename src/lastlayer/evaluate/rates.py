"""Candidates trained by gradient: fleets on scaled features, each with the rate that suits it."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lastlayer.catalogue.head_cards import card_of, split_name
from lastlayer.data.hold_out import hold_out
from lastlayer.evaluate.costs import KEPT, LARGEST, default_memory, member_bytes, multiplications
from lastlayer.evaluate.fleet import (
    CACHE,
    Job,
    Member,
    launch,
    logits_of,
    plan,
    rows_at_once,
    train,
)
from lastlayer.evaluate.pool import BATCH_SIZE, Rules, Schedule, Vectors, Verdict, epochs_for
from lastlayer.evaluate.splits import PART, Split
from lastlayer.evaluate.stream import Stream
from lastlayer.heads.gradient.members import Members

NORM = 16.0  # the root mean square norm of features that the rates on the cards are for
RATES = (1.0, 5.0, 0.2, 25.0, 0.04)  # times the card's; of equally good ones the first is taken
GRID_WORK = 4e12  # multiplications that finding the rates may take; streams are thinned to fit
WORK = 4e13  # multiplications that training may take; beyond it such heads are left out

Pair = tuple[str, float]  # a head and its learning rate
Rated = dict[tuple[int, str, float], float]  # split, head and rate → share right


def work_of(stream: Stream, split: Split) -> float:
    """Estimate the multiplications that training one head on a split takes."""
    return multiplications(split.n * epochs_for(split.tasks), stream.z.shape[1], stream.n_classes)


def too_large(stream: Stream, split: Split, heads: int) -> bool:
    """Return whether heads trained by gradient would take too much memory or time here."""
    needed = member_bytes(stream.z.shape[1], stream.n_classes, BATCH_SIZE)
    large = needed > LARGEST or 4 * stream.z.numel() > KEPT
    return large or heads * work_of(stream, split) > WORK


def thinned(stream: Stream, split: Split, n_heads: int, seed: int = 0) -> Split:
    """Hold out a part of the rows to choose learning rates by, and thin rows if there are many."""
    rows = torch.cat(split.tasks)
    y, task = stream.y[rows], stream.task_of[rows]
    group = None if stream.group is None else stream.group[rows]
    held = hold_out(y, task, group, part=PART, turn=0, seed=seed)
    share = GRID_WORK / (n_heads * len(RATES) * max(work_of(stream, split), 1.0))
    kept = ~held
    if share < 1:
        kept = hold_out(y, task, None, part=share, turn=0, seed=seed + 1) & kept
    left = torch.zeros(len(stream.y), dtype=torch.bool)
    left[rows[kept]] = True
    tasks = tuple(part[left[part]] for part in split.tasks)
    return Split(tasks, rows[held], checkpoints=(len(tasks) - 1,))


def find_rates(
    stream: Stream, splits: Sequence[Split], heads: Sequence[str], seed: int = 0
) -> list[Callable[[], Rated]]:
    """Return the pieces of work that score each head with each rate on inner splits."""
    inner = [thinned(stream, split, len(splits) * len(heads), seed) for split in splits]
    pairs = [(head, card_of(head).rate(None) * factor) for head in heads for factor in RATES]

    def rate(numbers: Sequence[int], members: Sequence[int]) -> Rated:
        own = [pairs[k] for k in members]
        found: Rated = {}
        verdicts = train_candidates(stream, [inner[s] for s in numbers], [own] * len(numbers))
        for s, of_split in zip(numbers, verdicts, strict=True):
            y = stream.y[inner[s].held]
            for pair, verdict in zip(own, of_split, strict=True):
                found[s, *pair] = float((verdict.answers[0] == y).double().mean())
        return found

    return [partial(rate, *fleet) for fleet in fleets(stream, inner, pairs)]


def best_rate(rated: Rated, head: str, splits: Sequence[int]) -> float:
    """Return the rate with which a head was right most often, over some splits."""
    rates = [card_of(head).rate(None) * factor for factor in RATES]
    return max(rates, key=lambda rate: sum(rated[s, head, rate] for s in splits))


def fleets(
    stream: Stream, splits: Sequence[Split], pairs: Sequence[Pair]
) -> list[tuple[list[int], list[int]]]:
    """Group splits and heads into fleets that stay in the cache: (splits, members) of each."""
    pool, rules = stream.pool, Rules()
    schedule = Schedule(tuple(rows for rows in splits[0].tasks if len(rows)))
    jobs = [Job(schedule, _member(*pair)) for pair in pairs]
    planned = plan(jobs, pool, rules, default_memory(pool.z.device) // 2)
    one = member_bytes(pool.z.shape[1], pool.n_classes, rules.batch_size)
    found = []
    for members in (numbers for fleet in planned for numbers in fleet.jobs):
        size = max(1, CACHE // (len(members) * one))
        for start in range(0, len(splits), size):
            found.append((list(range(len(splits)))[start : start + size], members))
    return found


def train_candidates(
    stream: Stream, splits: Sequence[Split], pairs: Sequence[Sequence[Pair]]
) -> list[list[Verdict]]:
    """Train ``pairs[s]`` on ``splits[s]``, all side by side, and score them on the way.

    The heads must be the same for all splits; their rates may differ.
    """
    pool, epochs = stream.pool, epochs_for(splits[0].tasks)
    fleet = launch(pool, [[_member(*pair) for pair in own] for own in pairs], "exact")
    points = {point for split in splits for point in split.checkpoints}
    seen: dict[int, Tensor] = {}  # answers (S, K, m) at each checkpoint
    wanted = [k for k, (head, _) in enumerate(pairs[0]) if head in splits[0].vectors_of]
    vectors: list[list[Tensor]] = []  # of those heads, at each checkpoint
    schedules = [Schedule(split.tasks) for split in splits]
    rules = Rules(epochs=epochs, skip_single=False, reseed=False)
    for task, epoch, _ in train(fleet, pool, schedules, rules):
        if epoch == epochs and task in points:
            seen[task] = _answers(fleet, stream, splits)
            if wanted:
                vectors.append([part[:, wanted] for part in fleet.vectors()])

    def verdict(s: int, k: int) -> Verdict:
        split, (head, rate) = splits[s], pairs[s][k]
        # Answers are padded beyond the split's own rows.
        answers = [seen[point][s, k, : len(split.held)] for point in split.checkpoints]
        counts = zip(answers, split.checkpoints, strict=True)
        right = torch.stack([count_right(stream, split, own, task) for own, task in counts])
        kept = None
        if k in wanted and split.vectors_of:
            parts = zip(*vectors, strict=True)
            kept = Vectors(*(torch.stack([t[s, wanted.index(k)] for t in own]) for own in parts))
        return Verdict(head, (answers[-1],), right, rate, vectors=kept)

    return [[verdict(s, k) for k in range(len(own))] for s, own in enumerate(pairs)]


def count_right(stream: Stream, split: Split, answers: Tensor, task: int) -> Tensor:
    """Count the right answers (…,) on held-out rows of the tasks so far; answers are (…, m)."""
    come = split.task_in(stream) <= task
    return ((answers == stream.y[split.held]) & come).sum(dim=-1)


def _answers(fleet: Members, stream: Stream, splits: Sequence[Split]) -> Tensor:
    """Return the class (S, K, m) that members predict for held-out rows, padded; −1: diverged."""
    features = stream.z
    held = pad_sequence([split.held for split in splits], batch_first=True)
    if (own := splits[0].held_z) is not None:  # then there is one split
        features, held = own, torch.arange(len(own))[None]
    pieces = (features[part] for part in held.split(rows_at_once(fleet), dim=1))
    answers = torch.cat([logits.argmax(dim=2) for logits in logits_of(fleet, pieces)], dim=2)
    answers[fleet.diverged >= 0] = -1
    return answers


def _member(head: str, rate: float) -> Member:
    layer, mask = split_name(head)
    return Member(layer, mask, rate)
