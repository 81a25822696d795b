"""Units of work: runs on the same data that are made at once, each unit independent of others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from lastlayer.core.progress import Meter
from lastlayer.errors import LastLayerError
from lastlayer.evaluate.fleet import Member, train_fleet
from lastlayer.evaluate.fleet_plan import Fleet, Job, plan
from lastlayer.evaluate.one_pass import KEPT, feed
from lastlayer.evaluate.pool import Rules, Score
from lastlayer.study.head_run import Run
from lastlayer.study.same_data import SameData

RULES = Rules()


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
