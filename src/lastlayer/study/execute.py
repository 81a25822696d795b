"""Making runs of heads, those that share data at once; and roughly how long that will take."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import torch

from lastlayer.core.checks import expect, whole
from lastlayer.core.devices import choose_device
from lastlayer.core.names import look_up
from lastlayer.core.progress import Meter, Tell
from lastlayer.core.threads import blas_threads, one_core_each, thread_count
from lastlayer.data import Features
from lastlayer.errors import LastLayerError
from lastlayer.evaluate import costs
from lastlayer.evaluate.fleet import Fleet, Job, Member, epochs_scored, plan, train_fleet
from lastlayer.evaluate.one_pass import KEPT, asked_after, feed
from lastlayer.evaluate.pool import Rules, Score
from lastlayer.scenarios import Scenario
from lastlayer.study.result import Failure, Outcome
from lastlayer.study.run import Forecast, Run, Work
from lastlayer.study.same_data import SameData, gather, repeats

RULES = Rules()
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Unit:
    """Places of runs among those on their data, and the work that returns their scores in order."""

    numbers: list[int]
    make: Callable[[], Iterable[Score]]
    cost: int  # of all its runs


@dataclass(frozen=True)
class Division:
    """How runs on the same data are divided: gradient heads into fleets, others by head."""

    shared: SameData
    costs: Mapping[Run, int]
    meter: Meter  # in costs
    memory: int  # bytes that each unit may take besides the data
    analyse: bool  # keep the output vectors of linear heads after each task

    def units(self, threads: int) -> list[Unit]:
        """Return the units, with streams divided among threads, the costliest unit first.

        Runs that are trained together have one batch size. Threads that take one unit after the
        other then end at nearly the same time.
        """
        schedules = self.shared.schedules
        place = {key: i for i, key in enumerate(dict.fromkeys(map(id, schedules)))}
        parts: dict[tuple[str | int | None, int], list[int]] = defaultdict(list)
        for number, (run, schedule) in enumerate(zip(self.shared.runs, schedules, strict=True)):
            kind = run.batch_size if run.by_gradient else run.head
            parts[kind, place[id(schedule)] % threads].append(number)
        units: list[Unit] = []
        for numbers in parts.values():
            if self.shared.runs[numbers[0]].by_gradient:
                units += self._fleets(numbers)
            else:
                units.append(Unit(numbers, partial(self._feed, numbers), self._cost(numbers)))
        return sorted(units, key=lambda unit: -unit.cost)

    def _cost(self, numbers: Iterable[int]) -> int:
        return sum(self.costs[self.shared.runs[number]] for number in numbers)

    def _counting(self, numbers: Iterable[int], samples: int) -> Callable[[int], None]:
        """Return a function that counts each of so many samples as its share of the cost."""
        cost = self._cost(numbers)
        return lambda seen: self.meter.add(round(cost * seen / max(samples, 1)))

    def _feed(self, numbers: list[int]) -> list[Score]:
        """Show streams to heads of one name that learn in one pass."""
        schedules = [self.shared.schedules[number] for number in numbers]
        run = self.shared.runs[numbers[0]]
        seen = sum(len(rows) for schedule in schedules for rows in schedule.tasks)
        return feed(
            self.shared.pool,
            schedules,
            run.head,
            run.preset,
            RULES,
            keep_vectors=self.analyse,
            on_task=self._counting(numbers, seen),
            memory=min(self.memory, KEPT),
        )

    def _fleets(self, numbers: list[int]) -> Iterator[Unit]:
        """Put gradient heads into as few fleets as the memory allows."""
        runs = [self.shared.runs[number] for number in numbers]
        rules = replace(RULES, batch_size=runs[0].batch_size or RULES.batch_size)
        jobs = [
            Job(
                self.shared.schedules[number],
                Member(run.head, run.mask, run.lr, run.seed, run.start, run.gain),
            )
            for number, run in zip(numbers, runs, strict=True)
        ]
        try:
            fleets = plan(jobs, self.shared.pool, rules, self.memory)
        except LastLayerError as error:
            yield Unit(numbers, partial(_refuse, error), cost=0)
            return
        for fleet in fleets:
            own = [numbers[job] for of_schedule in fleet.jobs for job in of_schedule]
            members = [[jobs[job].member for job in of_schedule] for of_schedule in fleet.jobs]
            make = partial(self._train, fleet, members, rules, own)
            yield Unit(own, make, self._cost(own))

    def _train(
        self, fleet: Fleet, members: list[list[Member]], rules: Rules, numbers: list[int]
    ) -> Iterable[Score]:
        seen = sum(s.repeat * len(rows) for s in fleet.schedules for rows in s.tasks)
        scores = train_fleet(
            self.shared.pool,
            fleet.schedules,
            members,
            self.shared.runs[0].preset,
            rules,
            self._counting(numbers, rules.epochs * seen),
            keep_vectors=self.analyse,
        )
        return chain(*scores)


def _refuse(error: LastLayerError) -> Iterable[Score]:
    raise error


def execute(
    runs: Iterable[Run],
    data: Mapping[str, Features],
    *,
    device: str = "auto",
    memory: int | None = None,
    progress: Tell | None = None,
) -> Iterator[Outcome]:
    """Make the runs, and yield each one's outcome as soon as it is ready, in no particular order.

    Args:
        runs: what to make.
        data: the features, by the names that the runs use.
        device: "cpu", "cuda", or "auto": a GPU if there is one.
        memory: bytes that training may take besides the data; None: a modest part of the memory.
        progress: called with the work done and the total, as ``costs_of`` estimates it.

    >>> from lastlayer import load_features
    >>> from lastlayer.scenarios import ScenarioSpec
    >>> run = Run("cifar10", ScenarioSpec("iid"), "mean")
    >>> (result,) = execute([run], {"cifar10": load_features("cifar10")})
    >>> round(result.final, 4)
    0.6326
    """
    expect(data, Mapping, "data", "features by name")
    for name, features in data.items():
        expect(features, Features, f"data[{name!r}]", "Features")
    expect(runs, Iterable, "runs", "a list of runs")
    made = list(runs)
    for run in made:
        expect(run, Run, "runs", "Run objects")
    limit = None if memory is None else whole(memory, "memory", least=1)
    work = Work(made, data, lambda run: False, device, Path(), progress)
    yield from chain.from_iterable(make_heads(work, analyse=False, memory=limit))


def make_heads(
    work: Work, *, analyse: bool = True, memory: int | None = None
) -> Iterator[list[Outcome]]:
    """Make runs of heads in units, and yield the outcomes of each unit at once.

    Numbers can differ in their last bits depending on what is trained beside them. Units depend on
    all the runs, finished ones included: a study that stops and resumes gets the same bits. A unit
    is skipped if all of its runs are done. ``analyse``: linear heads after each task
    (``Result.insight``); ``memory``: as in ``execute``.
    """
    device, done = choose_device(work.device), work.done
    together: dict[object, list[Run]] = defaultdict(list)
    for run in work.runs:
        together[run.features, run.scenario, run.preset, run.subset].append(run)
    cost_of = costs_of(work.runs, work.data)
    total = sum(cost_of[run] for run in work.runs if not done(run))
    settled, meter = 0, Meter(total, work.progress)
    # The clock starts: what is half done when heads first report is not forgotten.
    meter.reach(0)
    for runs in together.values():
        if all(map(done, runs)):
            continue
        left = [run for run in runs if not done(run)]
        try:
            shared = gather(runs, look_up(runs[0].features, work.data, "features"), device)
        except LastLayerError as error:
            yield [Failure(run, str(error)) for run in left]
        else:
            threads = thread_count(device)
            budget = (costs.default_memory(device) if memory is None else memory) // threads
            units = [
                unit
                for unit in Division(shared, cost_of, meter, budget, analyse).units(threads)
                if not all(done(runs[number]) for number in unit.numbers)
            ]
            # One core each holds for NumPy too, whose own threads would wait for each other.
            with blas_threads(1) if threads > 1 else nullcontext():
                yield from as_done(partial(_make, shared), units, min(threads, len(units)))
        settled += sum(cost_of[run] for run in left)
        # Whatever the estimates of its units came to.
        meter.reach(settled)


def _make(shared: SameData, unit: Unit) -> list[Outcome]:
    """Make a unit of runs, and turn its scores, or its error, into their outcomes."""
    try:
        scores = unit.make()
        return [shared.result(*pair) for pair in zip(unit.numbers, scores, strict=True)]
    except LastLayerError as error:
        return [Failure(shared.runs[number], str(error)) for number in unit.numbers]


def as_done(work: Callable[[T], R], pieces: Iterable[T], threads: int) -> Iterator[R]:
    """Yield ``work(piece)`` for each piece as it gets ready, in threads of one core each.

    Small trainings gain little from sharing two cores, and are twice as fast on one core each. A
    caller that stops early waits for the pieces under way, and not for the others.

    >>> sorted(as_done(len, ["a", "bcd"], threads=2))
    [1, 3]
    """
    if threads == 1:
        yield from map(work, pieces)
        return
    with one_core_each(threads) as pool:
        for future in as_completed([pool.submit(work, piece) for piece in pieces]):
            yield future.result()


def forecast_heads(
    runs: Mapping[str, Run], data: Mapping[str, Features], kept: set[str], device: torch.device
) -> list[Forecast]:
    """Return a row for each features, scenario and preset."""
    rows: dict[tuple[str, str, str], Counter[str]] = {}
    work = costs_of(runs.values(), data)
    for digest, run in runs.items():
        row = rows.setdefault((run.features, str(run.scenario), run.preset), Counter())
        row["runs"] += 1
        if digest not in kept:
            row["left"] += 1
            row["work"] += work[run]
    speed = costs.measured_speed(device) * thread_count(device) if rows else 1.0
    return [
        Forecast(*what, row["runs"], row["left"], row["work"] / speed) for what, row in rows.items()
    ]


def costs_of(runs: Iterable[Run], data: Mapping[str, Features]) -> dict[Run, int]:
    """Return the cost of each run; 0 where its stream cannot be made, which its run will say."""
    scenarios: dict[object, Scenario | None] = {}
    found = {}
    for run in runs:
        stream = run.features, run.scenario
        if stream not in scenarios:
            scenarios[stream] = _scenario(run, data)
        made = scenarios[stream]
        found[run] = 0 if made is None else round(cost(run, data[run.features], made))
    return found


def _scenario(run: Run, data: Mapping[str, Features]) -> Scenario | None:
    try:
        return run.scenario.build(look_up(run.features, data, "features"), order=0)
    except LastLayerError:
        return None


def cost(run: Run, data: Features, scenario: Scenario) -> float:
    """Estimate the cost of a run, in multiplications."""
    sizes = data.in_features, scenario.n_classes
    n, n_tasks = run.subset or len(data.train), scenario.n_tasks
    answers = len(asked_after(run.head, *sizes, n_tasks, len(data.train)))
    if run.by_gradient:
        answers = n_tasks * epochs_scored(n_tasks, RULES.epochs) + 1
    visits = RULES.epochs * n * repeats(run, n)
    test = len(data.test)
    return costs.cost(run.head, *sizes, n, test, visits=visits, answers=answers, traced=n_tasks)
