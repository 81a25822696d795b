"""The fleet: many gradient heads trained as one tensor, and which of them train together."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lastlayer.analysis.timeline import MOST_POINTS
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.errors import OptionError
from lastlayer.evaluate.costs import EVALUATE, evaluation_bytes, member_bytes, schedule_bytes
from lastlayer.evaluate.pool import Pool, Rules, Schedule, Score, Vectors
from lastlayer.heads.gradient.descent import step
from lastlayer.heads.gradient.members import Members, form_of, initial_parameters
from lastlayer.heads.head import Preset
from lastlayer.layers import LAYERS, MASKS

Batch = tuple[Tensor, Tensor | None]  # rows (S, n), and shares (S, n) where batches differ in size
CACHE = 32 << 20  # on a CPU a fleet is fastest while a step's tensors stay in the cache


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
    schedules: Sequence[Schedule],
    members: Sequence[Sequence[Member]],
    preset: Preset,
    rules: Rules,
    on_epoch: Callable[[int], None] | None = None,
    *,
    keep_vectors: bool = False,
) -> list[list[Score]]:
    """Train ``members[s]`` on ``schedules[s]``, all at once, and score them after each epoch.

    Where there are many tasks, so that a curve would have more than 130 points, only the end of
    each task is scored; counts after its other epochs are −1.

    The members of each schedule must have the same layers, gains and masks in the same order, so
    that their parameters form one tensor; learning rates, seeds and starts may differ. All
    schedules must have the same number of tasks. Training is on the device of the pool;
    ``on_epoch`` is called with the number of sample visits. ``keep_vectors`` returns the output
    vectors after each task too: T·N·h floats for each member.
    """
    fleet = launch(pool, members, preset)
    columns = pool.test_columns().to(pool.z.device)
    curve, steps = [_count_right(fleet, pool, columns)], [0]
    vectors = []
    every = rules.epochs // epochs_scored(len(schedules[0].tasks), rules.epochs)
    for _, epoch, visits in train(fleet, pool, schedules, rules):
        asked = epoch % every == 0
        curve.append(_count_right(fleet, pool, columns) if asked else torch.full_like(curve[0], -1))
        steps.append(int(fleet.steps))
        if on_epoch is not None:
            on_epoch(visits)
        if keep_vectors and epoch == rules.epochs:
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


def train(
    fleet: Members, pool: Pool, schedules: Sequence[Schedule], rules: Rules
) -> Iterator[tuple[int, int, int]]:
    """Train a fleet, and yield after each epoch the task, the epoch from 1, and sample visits."""
    take_step = Stepper(fleet, pool)
    for task in range(len(schedules[0].tasks)):
        generators = [rules.generator(schedule.seed, task) for schedule in schedules]
        for epoch in range(1, rules.epochs + 1):
            visits = 0
            for rows, share in epoch_of_batches(schedules, task, rules, generators, pool.z.device):
                take_step(rows, share)
                visits += rows.numel()
            # A step notices divergence by its gradient; what overflows in an epoch's last step
            # shows only in the parameters.
            fleet.mark_diverged()
            yield task, epoch, visits


def logits_of(fleet: Members, pieces: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the logits (S, K, N, n) of each piece of features; −∞ for classes not seen yet."""
    rows, _ = fleet.rows()
    for z in pieces:
        logits = fleet.scores(z, rows, fleet.inverse_input(z))
        if fleet.seen is not None:
            logits.masked_fill_((fleet.seen == 0)[:, None, :, None], -torch.inf)
        yield logits


def rows_at_once(fleet: Members) -> int:
    """Return how many rows to score at a time."""
    weight = fleet.parameters["weight"]
    return max(EVALUATE[weight.device.type] // weight[..., 0].numel(), 16)


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


def epoch_of_batches(
    schedules: Sequence[Schedule],
    task: int,
    rules: Rules,
    generators: Sequence[torch.Generator],
    device: torch.device,
) -> list[Batch]:
    """Shuffle one epoch of a task for every schedule, and bring its rows to the device at once."""
    batches = [
        [
            schedule.tasks[task][positions]
            for _ in range(schedule.repeat)
            for positions in rules.batches(len(schedule.tasks[task]), generator)
        ]
        for schedule, generator in zip(schedules, generators, strict=True)
    ]
    n_steps = max(len(of_schedule) for of_schedule in batches)
    if not n_steps:
        return []
    sizes = torch.zeros(n_steps, len(schedules), dtype=torch.int64)
    rows = torch.zeros(n_steps, len(schedules), rules.batch_size, dtype=torch.int64)
    for s, of_schedule in enumerate(batches):
        for i, batch in enumerate(of_schedule):
            sizes[i, s] = len(batch)
            rows[i, s, : len(batch)] = batch
    real = torch.arange(rules.batch_size) < sizes[..., None]
    share = (real / sizes[..., None].clamp(min=1)).to(device)
    rows = rows.to(device)
    longest = sizes.amax(dim=1).tolist()
    ragged = (sizes != sizes[:, :1]).any(dim=1).tolist()
    # All ragged steps get the width of the widest: one shape, one CUDA graph.
    widest = max(longest)
    return [
        (rows[i, :, :widest], share[i, :, :widest]) if ragged[i] else (rows[i, :, :n], None)
        for i, n in enumerate(longest)
    ]


@dataclass
class Stepper:
    """Takes steps of a fleet: plain calls on a CPU, replayed CUDA graphs on a GPU.

    On a GPU the first batch of a shape runs directly, then the step is recorded.
    """

    fleet: Members
    pool: Pool
    _graphs: dict[tuple[int, bool], "_Graph"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set memory aside for the graphs."""
        self.memory = torch.cuda.graph_pool_handle() if self.pool.z.is_cuda else None

    def __call__(self, rows: Tensor, share: Tensor | None) -> None:
        """Take one step on the rows (S, n) of the pool."""
        key = (rows.shape[1], share is not None)
        if rows.is_cuda and key in self._graphs:
            self._graphs[key].replay(rows, share)
            return
        step(self.fleet, self.pool.z[rows], self.pool.y[rows], share)
        if rows.is_cuda:
            self._graphs[key] = _Graph(self, rows.clone(), None if share is None else share.clone())


class _Graph:
    """A recorded step: recording runs nothing, replaying launches all its kernels at once."""

    def __init__(self, stepper: Stepper, rows: Tensor, share: Tensor | None) -> None:
        self.rows, self.share = rows, share
        self.graph = torch.cuda.CUDAGraph()
        # What a step leaves behind is in the fleet, so that all graphs may use the same memory.
        with torch.cuda.graph(self.graph, pool=stepper.memory):
            step(stepper.fleet, stepper.pool.z[rows], stepper.pool.y[rows], share)

    def replay(self, rows: Tensor, share: Tensor | None) -> None:
        self.rows.copy_(rows)
        if share is not None and self.share is not None:
            self.share.copy_(share)
        self.graph.replay()


def _count_right(fleet: Members, pool: Pool, columns: Tensor) -> Tensor:
    """Count the right answers (S, K, N + groups) of all members."""
    shape = fleet.parameters["weight"].shape[:2]
    count = columns.new_zeros(shape.numel(), columns.shape[1])
    size = rows_at_once(fleet)
    parts = zip(pool.test_y.split(size), columns.split(size), strict=True)
    for logits, (y, own) in zip(logits_of(fleet, pool.test_z.split(size)), parts, strict=True):
        count += _right(logits, y).flatten(0, 1).to(columns.dtype) @ own
    return count.view(*shape, -1)


def _right(scores: Tensor, y: Tensor) -> Tensor:
    """Return where the lowest class with the largest logit is ``y``: (S, K, n) from (S, K, N, n).

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


@dataclass(frozen=True)
class Job:
    """One gradient head to train on one schedule."""

    schedule: Schedule
    member: Member


@dataclass(frozen=True)
class Fleet:
    """Jobs that train at once: ``jobs[s][k]`` is the number of the job of schedule s, member k."""

    schedules: list[Schedule]
    jobs: list[list[int]]


def plan(jobs: Sequence[Job], pool: Pool, rules: Rules, memory: int) -> list[Fleet]:
    """Group jobs into fleets, none of which takes more than ``memory`` bytes besides the pool.

    The schedules of a fleet have members of the same layers, gains and masks, so its tensors are
    rectangular. On a CPU their tasks have the same sizes too, in any order: padding a shorter
    schedule costs time there, but not on a GPU, where a step costs only its launch. Every job is in
    exactly one fleet.
    """
    on_cpu = pool.z.device.type == "cpu"
    by_schedule: dict[int, list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        by_schedule[id(job.schedule)].append(number)
    alike: dict[object, list[list[int]]] = defaultdict(list)
    for numbers in by_schedule.values():
        numbers.sort(key=lambda n: _place(jobs[n].member))
        schedule = jobs[numbers[0]].schedule
        kinds = tuple(_place(jobs[n].member) for n in numbers)
        sizes = (schedule.repeat, *sorted(len(task) for task in schedule.tasks))
        alike[kinds, sizes if on_cpu else len(schedule.tasks)].append(numbers)
    return [
        Fleet([jobs[numbers[0]].schedule for numbers in part], part)
        for group in alike.values()
        for part in _fit(
            group, max(_visits(jobs[of[0]].schedule) for of in group), pool, rules, memory
        )
    ]


def _place(member: Member) -> tuple[bool, bool, int, bool, int]:
    """Return a sort key that puts similar members side by side, even across two layers.

    Equal keys mean equal form and mask.
    """
    form, layer = form_of(member.layer, member.gain), list(LAYERS).index(member.layer)
    mask = list(MASKS).index(member.mask)
    return form.unit_rows, form.unit_input, layer, form.fixed_gain, -mask if layer % 2 else mask


def _visits(schedule: Schedule) -> int:
    """Count the samples of the schedule's longest epoch."""
    return schedule.repeat * max(len(task) for task in schedule.tasks)


def _fit(
    group: list[list[int]], longest: int, pool: Pool, rules: Rules, memory: int
) -> Iterator[list[list[int]]]:
    """Split schedules first, and the members of one only where a single schedule is too large."""
    device, sizes = pool.z.device.type, (pool.z.shape[1], pool.n_classes, rules.batch_size)
    schedule, member = schedule_bytes(longest, *sizes), member_bytes(*sizes)
    left = memory - evaluation_bytes(device)
    if left < schedule + member:
        raise OptionError(
            f"memory must be at least {_mib(memory - left + schedule + member)} MiB for one head "
            f"of {pool.n_classes} classes and {pool.z.shape[1]} features, got {_mib(memory)} MiB"
        )
    if device == "cpu":
        left = min(left, max(CACHE, schedule + member))
    n_members = min(len(group[0]), max((left - schedule) // member, 1))
    n_schedules = max(left // (schedule + n_members * member), 1)
    for first in range(0, len(group), n_schedules):
        for start in range(0, len(group[0]), n_members):
            some = group[first : first + n_schedules]
            yield [numbers[start : start + n_members] for numbers in some]


def _mib(n: int) -> int:
    return -(-n // (1 << 20))
