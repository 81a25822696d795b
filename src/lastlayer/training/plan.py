"""Which heads train together: as many as can form one tensor and fit a memory budget."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from lastlayer.errors import OptionError
from lastlayer.heads.gradient.initial import form_of
from lastlayer.layers import LAYERS, MASKS
from lastlayer.training.fleet import EVALUATE, Member
from lastlayer.training.pool import Pool, Rules, Stream

T = TypeVar("T")
CACHE = 32 << 20  # on a CPU a fleet is fastest while a step's tensors stay in the cache


@dataclass(frozen=True)
class Job:
    """One gradient head to train on one stream."""

    stream: Stream
    member: Member


@dataclass(frozen=True)
class Fleet:
    """Jobs that train at once: ``jobs[s][k]`` is the number of the job of stream s, member k."""

    streams: list[Stream]
    jobs: list[list[int]]


def plan(jobs: Sequence[Job], pool: Pool, rules: Rules, memory: int) -> list[Fleet]:
    """Group jobs into fleets, none of which takes more than ``memory`` bytes besides the pool.

    The streams of a fleet have members of the same layers, gains and masks, so its tensors are
    rectangular. On a CPU their tasks have the same sizes too, in any order: padding a shorter
    stream costs time there, but not on a GPU, where a step costs only its launch. Every job is in
    exactly one fleet.
    """
    on_cpu = pool.z.device.type == "cpu"
    by_stream: dict[int, list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        by_stream[id(job.stream)].append(number)
    alike: dict[object, list[list[int]]] = defaultdict(list)
    for numbers in by_stream.values():
        numbers.sort(key=lambda n: _place(jobs[n].member))
        stream = jobs[numbers[0]].stream
        kinds = tuple(_place(jobs[n].member) for n in numbers)
        sizes = (stream.repeat, *sorted(len(task) for task in stream.tasks))
        alike[kinds, sizes if on_cpu else len(stream.tasks)].append(numbers)
    return [
        Fleet([jobs[numbers[0]].stream for numbers in part], part)
        for group in alike.values()
        for part in _fit(
            group, max(_visits(jobs[of[0]].stream) for of in group), pool, rules, memory
        )
    ]


def _place(member: Member) -> tuple[bool, bool, int, bool, int]:
    """Return a sort key that puts similar members side by side, even across two layers.

    Equal keys mean equal form and mask.
    """
    form, layer = form_of(member.layer, member.gain), list(LAYERS).index(member.layer)
    mask = list(MASKS).index(member.mask)
    return form.unit_rows, form.unit_input, layer, form.fixed_gain, -mask if layer % 2 else mask


def _visits(stream: Stream) -> int:
    """Count the samples of the stream's longest epoch."""
    return stream.repeat * max(len(task) for task in stream.tasks)


def _fit(
    group: list[list[int]], longest: int, pool: Pool, rules: Rules, memory: int
) -> Iterator[list[list[int]]]:
    """Split streams apart first, and the members of a stream only where one stream is too large."""
    device = pool.z.device.type
    stream, member = stream_bytes(longest, pool, rules), member_bytes(pool, rules)
    room = memory - evaluation_bytes(device)
    if room < stream + member:
        raise OptionError(
            f"expected a memory budget of at least {_mib(memory - room + stream + member)} MiB "
            f"for one head of {pool.n_classes} classes and {pool.z.shape[1]} features, "
            f"got {_mib(memory)} MiB"
        )
    if device == "cpu":
        room = min(room, max(CACHE, stream + member))
    n_members = min(len(group[0]), max((room - stream) // member, 1))
    n_streams = max(room // (stream + n_members * member), 1)
    for streams in _chunks(group, n_streams):
        for start in range(0, len(group[0]), n_members):
            yield [numbers[start : start + n_members] for numbers in streams]


def member_bytes(pool: Pool, rules: Rules) -> int:
    """Return the bytes of a step for one head: its state and gradient, and a batch's logits."""
    return 4 * pool.n_classes * (6 * pool.z.shape[1] + 4 * rules.batch_size)


def stream_bytes(visits: int, pool: Pool, rules: Rules) -> int:
    """Return the bytes of one stream: an epoch's rows and shares, a batch with its targets."""
    return 32 * visits + 4 * rules.batch_size * (2 * pool.z.shape[1] + 2 * pool.n_classes)


def evaluation_bytes(device: str) -> int:
    """Return the bytes of scoring: the logits, a copy of them, and where they are largest."""
    return 12 * EVALUATE[device]


def default_memory(device: torch.device) -> int:
    """Return half of a GPU's free memory, or 1 GiB on a CPU."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else 1 << 30


def _chunks(items: list[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _mib(n: int) -> int:
    return -(-n // (1 << 20))
