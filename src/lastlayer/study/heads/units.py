"""Units of work: runs of a group that are made at once, each unit independent of the others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from lastlayer.errors import LastLayerError
from lastlayer.progress import Meter
from lastlayer.study.heads.group import Group
from lastlayer.training.feed import KEPT, feed
from lastlayer.training.fleet import Member, train_fleet
from lastlayer.training.plan import Fleet, Job
from lastlayer.training.plan import plan as group_into_fleets
from lastlayer.training.pool import Rules, Score

RULES = Rules()


@dataclass(frozen=True)
class Unit:
    """The numbers of runs in their group, and the work that returns their scores in that order."""

    numbers: list[int]
    make: Callable[[], Iterable[Score]]


def units_of(
    group: Group, meter: Meter, memory: int, threads: int, *, analyse: bool
) -> Iterator[Unit]:
    """Divide a group's runs: gradient heads into fleets, others by head, streams among threads.

    Runs that are trained together have one batch size.

    Args:
        group: the runs.
        meter: called as work is done.
        memory: bytes that each unit may take besides the data.
        threads: how many units will be made at a time.
        analyse: whether to keep the output vectors of linear heads after each task.
    """
    place = {id(stream): i for i, stream in enumerate({id(s): s for s in group.streams}.values())}
    parts: dict[tuple[str | int | None, int], list[int]] = defaultdict(list)
    for number, (run, stream) in enumerate(zip(group.runs, group.streams, strict=True)):
        kind = run.batch_size if run.by_gradient else run.head
        parts[kind, place[id(stream)] % threads].append(number)
    for numbers in parts.values():
        if group.runs[numbers[0]].by_gradient:
            yield from _fleets(group, numbers, meter, memory, analyse)
        else:
            yield Unit(numbers, partial(_feed, group, numbers, meter, memory, analyse))


def _feed(
    group: Group, numbers: list[int], meter: Meter, memory: int, analyse: bool
) -> list[Score]:
    """Feed streams to heads of one name that learn in one pass."""
    run, streams = group.runs[numbers[0]], [group.streams[number] for number in numbers]
    return feed(
        group.pool,
        streams,
        run.head,
        run.preset,
        RULES,
        keep_vectors=analyse,
        on_task=_counting(meter, RULES.epochs),
        memory=min(memory, KEPT),
    )


def _fleets(
    group: Group, numbers: list[int], meter: Meter, memory: int, analyse: bool
) -> Iterator[Unit]:
    """Put gradient heads into as few fleets as the memory allows."""
    runs = [group.runs[number] for number in numbers]
    jobs = [
        Job(
            group.streams[number],
            Member(run.head, run.mask, run.lr, run.seed, run.start, run.gain),
        )
        for number, run in zip(numbers, runs, strict=True)
    ]
    rules = replace(RULES, batch_size=runs[0].batch_size or RULES.batch_size)
    try:
        fleets = group_into_fleets(jobs, group.pool, rules, memory)
    except LastLayerError as error:
        yield Unit(numbers, partial(_refuse, error))
        return
    for fleet in fleets:
        members = [[jobs[job].member for job in of_stream] for of_stream in fleet.jobs]
        in_fleet = [numbers[job] for of_stream in fleet.jobs for job in of_stream]
        yield Unit(in_fleet, partial(_train, group, fleet, members, rules, meter, analyse))


def _train(
    group: Group,
    fleet: Fleet,
    members: list[list[Member]],
    rules: Rules,
    meter: Meter,
    analyse: bool,
) -> Iterable[Score]:
    tell, preset = _counting(meter, len(members[0])), group.runs[0].preset
    return chain(
        *train_fleet(group.pool, fleet.streams, members, preset, rules, tell, keep_vectors=analyse)
    )


def _counting(meter: Meter, times: int) -> Callable[[int], None]:
    """Return a function that counts each sample it is given this many times."""
    return lambda samples: meter.add(times * samples)


def _refuse(error: LastLayerError) -> Iterable[Score]:
    raise error
