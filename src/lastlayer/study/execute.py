"""Making runs of heads, those that share data at once; and roughly how long that will take."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import nullcontext
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
from lastlayer.evaluate.fleet import epochs_scored
from lastlayer.evaluate.one_pass import asked_after
from lastlayer.scenarios import Scenario
from lastlayer.study.head_run import Run
from lastlayer.study.result import Failure, Outcome
from lastlayer.study.run import Forecast, Work
from lastlayer.study.same_data import SameData, gather, repeats
from lastlayer.study.units import RULES, Division, Unit

T = TypeVar("T")
R = TypeVar("R")


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
