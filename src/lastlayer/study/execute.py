"""Making runs: those that share data run together, and each ends as a result or a failure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from lastlayer.core.checks import expect, whole
from lastlayer.core.devices import choose_device
from lastlayer.core.names import look_up
from lastlayer.core.progress import Meter, Tell
from lastlayer.core.threads import blas_threads, one_core_each, thread_count
from lastlayer.data import Features
from lastlayer.errors import LastLayerError
from lastlayer.evaluate.costs import default_memory
from lastlayer.study.head_forecast import costs_of
from lastlayer.study.head_run import Run
from lastlayer.study.result import Failure, Outcome
from lastlayer.study.run import Work
from lastlayer.study.run_group import Group, gather
from lastlayer.study.units import Division, Unit

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
    is skipped if all of its runs are done.

    Args:
        work: the runs, and what to make them with.
        analyse: whether to analyse linear heads after each task (``Result.insight``).
        memory: as in ``execute``.
    """
    device, done = choose_device(work.device), work.done
    groups: dict[object, list[Run]] = defaultdict(list)
    for run in work.runs:
        groups[run.features, run.scenario, run.preset, run.subset].append(run)
    costs = costs_of(work.runs, work.data)
    total = sum(costs[run] for run in work.runs if not done(run))
    settled, meter = 0, Meter(total, work.progress)
    # The clock starts: what is half done when heads first report is not forgotten.
    meter.reach(0)
    for runs in groups.values():
        if all(map(done, runs)):
            continue
        left = [run for run in runs if not done(run)]
        try:
            group = gather(runs, look_up(runs[0].features, work.data, "features"), device)
        except LastLayerError as error:
            yield [Failure(run, str(error)) for run in left]
        else:
            threads = thread_count(device)
            budget = (default_memory(device) if memory is None else memory) // threads
            units = [
                unit
                for unit in Division(group, costs, meter, budget, analyse).units(threads)
                if not all(done(runs[number]) for number in unit.numbers)
            ]
            # One core each holds for NumPy too, whose own threads would wait for each other.
            with blas_threads(1) if threads > 1 else nullcontext():
                yield from as_done(partial(_make, group), units, min(threads, len(units)))
        settled += sum(costs[run] for run in left)
        # Whatever the estimates of its units came to.
        meter.reach(settled)


def _make(group: Group, unit: Unit) -> list[Outcome]:
    """Make a unit of runs, and turn its scores, or its error, into their outcomes."""
    try:
        scores = unit.make()
        return [group.result(*pair) for pair in zip(unit.numbers, scores, strict=True)]
    except LastLayerError as error:
        return [Failure(group.runs[number], str(error)) for number in unit.numbers]


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
