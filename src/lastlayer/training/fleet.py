"""The fleet: many gradient heads trained as one tensor, each exactly as it would be alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lastlayer.analysis.timeline import MOST_POINTS
from lastlayer.catalogue import HEADS
from lastlayer.heads.gradient.initial import form_of, initial_parameters
from lastlayer.heads.gradient.members import Members
from lastlayer.heads.head import Preset
from lastlayer.training.lockstep import epoch_of_batches
from lastlayer.training.pool import Pool, Rules, Score, Stream, Vectors
from lastlayer.training.stepper import Stepper

EVALUATE = {"cpu": 1 << 19, "cuda": 1 << 26}  # logits at a time: on a CPU, what a cache holds


@dataclass(frozen=True)
class Member:
    """One gradient head: what it is and where it starts; None stands for the head's default."""

    layer: str
    mask: str = "none"
    lr: float | None = None
    seed: int = 0
    start: str | None = None  # preset "paper": "uniform" or "normal", where the layer has a choice
    gain: str | None = None  # of weight_norm: "unit" or "frozen"


def train_fleet(
    pool: Pool,
    streams: Sequence[Stream],
    members: Sequence[Sequence[Member]],
    preset: Preset,
    rules: Rules,
    on_epoch: Callable[[int], None] | None = None,
    *,
    keep_vectors: bool = False,
) -> list[list[Score]]:
    """Train ``members[s]`` on ``streams[s]``, all at once, and score them after each epoch.

    Of a long stream, whose curve would have more than 130 points, only the end of each task is
    scored; counts after its other epochs are −1.

    The members of each stream must have the same layers, gains and masks in the same order, so
    that their parameters form one tensor; learning rates, seeds and starts may differ. All streams
    must have the same number of tasks.

    Args:
        pool: the samples, on the device to train on.
        streams: S orders of tasks.
        members: S lists of K members.
        preset: "exact" or "paper".
        rules: epochs and batches.
        on_epoch: called with the number of sample visits after each epoch.
        keep_vectors: whether to return the output vectors after each task too: T·N·h floats for
            each member.
    """
    fleet = launch(pool, members, preset)
    take_step = Stepper(fleet, pool)
    columns = pool.test_columns().to(pool.z.device)
    curve, steps = [_evaluate(fleet, pool, columns)], [0]
    vectors, n_tasks = [], len(streams[0].tasks)
    every = rules.epochs // epochs_scored(n_tasks, rules.epochs)
    for task in range(n_tasks):
        # Reseeded for every task, as in the paper's code: a task is shuffled in the same way
        # wherever it comes in the stream.
        generators = [torch.Generator().manual_seed(stream.seed) for stream in streams]
        for epoch in range(1, rules.epochs + 1):
            visits = 0
            for rows, share in epoch_of_batches(streams, task, rules, generators, pool.z.device):
                take_step(rows, share)
                visits += rows.numel()
            # A step notices divergence by its gradient; what overflows in an epoch's last step
            # shows only in the parameters.
            fleet.mark_diverged()
            asked = epoch % every == 0
            curve.append(
                _evaluate(fleet, pool, columns) if asked else torch.full_like(curve[0], -1)
            )
            steps.append(int(fleet.steps))
            if on_epoch is not None:
                on_epoch(visits)
        if keep_vectors:
            vectors.append([part.cpu() for part in fleet.vectors()])
    counts = torch.stack(curve).round().to("cpu", torch.int64)
    diverged = fleet.diverged.cpu()
    # From the step at which a member diverged on, its numbers mean nothing.
    lost = (diverged >= 0) & (torch.tensor(steps)[:, None, None] >= diverged)
    if preset == "exact":
        lost[0] = True  # before it has seen a class, a head cannot predict
    counts[lost] = -1
    over_tasks = [torch.stack(parts) for parts in zip(*vectors, strict=True)]
    return _scores(counts, diverged, pool.n_classes, over_tasks)


def epochs_scored(n_tasks: int, epochs: int) -> int:
    """Return after how many epochs of each task heads are scored: all, or the last of many tasks.

    >>> epochs_scored(5, 5), epochs_scored(100, 5)
    (5, 1)
    """
    return epochs if n_tasks * epochs < MOST_POINTS else 1


def launch(pool: Pool, members: Sequence[Sequence[Member]], preset: Preset) -> Members:
    """Lay out the first state of a fleet."""
    first = members[0]
    size = (pool.n_classes, pool.z.shape[1])
    shape = (len(members), len(first))
    parameters = {"weight": torch.zeros(*shape, *size)}
    for s, of_stream in enumerate(members):
        for k, member in enumerate(of_stream):
            first_rows = initial_parameters(
                member.layer, *size, preset, member.seed, member.start, member.gain
            )
            for name, value in first_rows.items():
                whole = parameters.setdefault(name, torch.zeros(*shape, *value.shape))
                whole[s, k] = value
    parameters = {name: value.to(pool.z.device) for name, value in parameters.items()}
    rate = [[HEADS[m.layer].rate(m.lr) for m in of_stream] for of_stream in members]
    device = pool.z.device
    return Members(
        forms=[form_of(member.layer, member.gain) for member in first],
        masks=[member.mask for member in first],
        parameters=parameters,
        velocity={name: torch.zeros_like(value) for name, value in parameters.items()},
        lr=torch.tensor(rate, device=device),
        steps=torch.zeros((), dtype=torch.int64, device=device),
        diverged=torch.full(shape, -1, device=device),
        seen=torch.zeros(shape[0], size[0], device=device) if preset == "exact" else None,
    )


def _evaluate(fleet: Members, pool: Pool, columns: Tensor) -> Tensor:
    """Count the right answers (S, K, N + groups) of all members."""
    streams, n_members, n_classes, _ = fleet.parameters["weight"].shape
    count = columns.new_zeros(streams * n_members, columns.shape[1])
    rows, _ = fleet.rows()
    chunk = max(EVALUATE[columns.device.type] // (streams * n_members * n_classes), 16)
    for start in range(0, len(pool.test_y), chunk):
        part = slice(start, start + chunk)
        z = pool.test_z[part]
        scores = fleet.scores(z, rows, fleet.inverse_input(z))
        if fleet.seen is not None:
            scores.masked_fill_((fleet.seen == 0)[:, None, :, None], -torch.inf)
        right = _right(scores, pool.test_y[part])
        count += right.flatten(0, 1).to(columns.dtype) @ columns[part]
    return count.view(streams, n_members, -1)


def _right(scores: Tensor, y: Tensor) -> Tensor:
    """Return where the lowest class with the largest score is ``y``: (S, K, n) from (S, K, N, n).

    Comparing with the maximum is many times faster than argmax across rows, and gives the same
    answer where no two classes tie for it.
    """
    best = scores.amax(dim=2, keepdim=True)
    hits = scores == best
    if int(hits.sum(dim=2, dtype=torch.int16).max()) <= 1:
        return hits.gather(2, y.expand_as(best)).squeeze(2)
    return scores.argmax(dim=2) == y


def _scores(
    counts: Tensor, diverged: Tensor, n_classes: int, vectors: list[Tensor]
) -> list[list[Score]]:
    """Split counts (evaluations, S, K, N + groups) and vectors (T, S, K, …) into members."""
    by_class, by_group = counts[..., :n_classes], counts[..., n_classes:]

    def score(s: int, k: int) -> Score:
        own = Vectors(*(part[:, s, k] for part in vectors)) if vectors else None
        return Score(by_class[:, s, k], by_group[:, s, k], int(diverged[s, k]), own)

    streams, members = (range(n) for n in diverged.shape)
    return [[score(s, k) for k in members] for s in streams]
