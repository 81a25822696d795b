"""Units of work: runs of a group that are made at once, each unit independent of the others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from lastlayer.errors import LastLayerError
from lastlayer.progress import Meter
from lastlayer.study.heads.group import Group
from lastlayer.study.heads.run import Run
from lastlayer.training.feed import KEPT, feed
from lastlayer.training.fleet import Member, train_fleet
from lastlayer.training.plan import Fleet, Job
from lastlayer.training.plan import plan as group_into_fleets
from lastlayer.training.pool import Rules, Score

RULES = Rules()
Tell = Callable[[int], None]  # takes the samples that were seen just now


@dataclass(frozen=True)
class Unit:
    """The numbers of runs in their group, and the work that returns their scores in that order."""

    numbers: list[int]
    make: Callable[[], Iterable[Score]]
    cost: int = 0  # of all its runs


def units_of(
    group: Group,
    costs: Mapping[Run, int],
    meter: Meter,
    memory: int,
    threads: int,
    *,
    analyse: bool,
) -> list[Unit]:
    """Divide a group's runs: gradient heads into fleets, others by head, streams among threads.

    Runs that are trained together have one batch size. The costliest unit comes first: threads that
    take one after the other then end at nearly the same time.

    Args:
        group: the runs.
        costs: of each run.
        meter: called as work is done, in costs.
        memory: bytes that each unit may take besides the data.
        threads: how many units will be made at a time.
        analyse: whether to keep the output vectors of linear heads after each task.
    """
    place = {id(stream): i for i, stream in enumerate({id(s): s for s in group.streams}.values())}
    parts: dict[tuple[str | int | None, int], list[int]] = defaultdict(list)
    for number, (run, stream) in enumerate(zip(group.runs, group.streams, strict=True)):
        kind = run.batch_size if run.by_gradient else run.head
        parts[kind, place[id(stream)] % threads].append(number)
    units: list[Unit] = []
    for numbers in parts.values():
        if group.runs[numbers[0]].by_gradient:
            units += _fleets(group, costs, numbers, meter, memory, analyse)
        else:
            whole = sum(costs[group.runs[number]] for number in numbers)
            seen = sum(len(rows) for number in numbers for rows in group.streams[number].tasks)
            tell = _counting(meter, whole, seen)
            make = partial(_feed, group, numbers, tell, memory, analyse)
            units.append(Unit(numbers, make, whole))
    return sorted(units, key=lambda unit: -unit.cost)


def _feed(group: Group, numbers: list[int], tell: Tell, memory: int, analyse: bool) -> list[Score]:
    """Feed streams to heads of one name that learn in one pass."""
    run, streams = group.runs[numbers[0]], [group.streams[number] for number in numbers]
    return feed(
        group.pool,
        streams,
        run.head,
        run.preset,
        RULES,
        keep_vectors=analyse,
        on_task=tell,
        memory=min(memory, KEPT),
    )


def _fleets(
    group: Group,
    costs: Mapping[Run, int],
    numbers: list[int],
    meter: Meter,
    memory: int,
    analyse: bool,
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
        whole = sum(costs[group.runs[number]] for number in in_fleet)
        seen = sum(s.repeat * len(rows) for s in fleet.streams for rows in s.tasks)
        tell = _counting(meter, whole, rules.epochs * seen)
        yield Unit(in_fleet, partial(_train, group, fleet, members, rules, tell, analyse), whole)


def _train(
    group: Group,
    fleet: Fleet,
    members: list[list[Member]],
    rules: Rules,
    tell: Tell,
    analyse: bool,
) -> Iterable[Score]:
    preset = group.runs[0].preset
    return chain(
        *train_fleet(group.pool, fleet.streams, members, preset, rules, tell, keep_vectors=analyse)
    )


def _counting(meter: Meter, cost: int, samples: int) -> Tell:
    """Return a function that counts each of so many samples as its share of a cost."""
    return lambda seen: meter.add(round(cost * seen / max(samples, 1)))


def _refuse(error: LastLayerError) -> Iterable[Score]:
    raise error
