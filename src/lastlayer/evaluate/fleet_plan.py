"""Which heads train together: as many as can form one tensor and fit a memory budget."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lastlayer.errors import OptionError
from lastlayer.evaluate.costs import evaluation_bytes, member_bytes, schedule_bytes
from lastlayer.evaluate.fleet import Member
from lastlayer.evaluate.pool import Pool, Rules, Schedule
from lastlayer.heads.gradient.initial import form_of
from lastlayer.layers import LAYERS, MASKS

CACHE = 32 << 20  # on a CPU a fleet is fastest while a step's tensors stay in the cache


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
