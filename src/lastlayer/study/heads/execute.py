"""Making runs: those that share data run together, and each ends as a result or a failure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import TypeVar, cast

import torch

from lastlayer.arguments import expect, whole
from lastlayer.blas import blas_threads
from lastlayer.errors import LastLayerError, OptionError
from lastlayer.features import Features
from lastlayer.names import look_up
from lastlayer.progress import Meter, Tell
from lastlayer.study.heads.forecast import costs_of
from lastlayer.study.heads.group import Group, gather
from lastlayer.study.heads.run import Run
from lastlayer.study.heads.units import Unit, units_of
from lastlayer.study.result import Failure, Outcome
from lastlayer.study.run import Work
from lastlayer.threads import one_core_each, thread_count
from lastlayer.training.plan import default_memory

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
    >>> from lastlayer.study import ScenarioSpec
    >>> run = Run("cifar10", ScenarioSpec("iid"), "mean")
    >>> (result,) = execute([run], {"cifar10": load_features("cifar10")})
    >>> round(result.final, 4)
    0.6326
    """
    expect(data, Mapping, "data", "features by name")
    for name, features in data.items():
        expect(features, Features, f"data[{name!r}]", "Features")
    made = _listed(runs)
    room = None if memory is None else whole(memory, "memory", least=1)
    yield from chain.from_iterable(
        in_units(made, data, device=device, memory=room, progress=progress)
    )


def _listed(runs: object) -> list[Run]:
    """Return runs as a list, from any iterable."""
    expect(runs, Iterable, "runs", "runs")
    listed = list(cast("Iterable[Run]", runs))
    for run in listed:
        expect(run, Run, "runs", "Run objects")
    return listed


def make_heads(work: Work[Run, Features]) -> Iterator[list[Outcome]]:
    """Make a study's runs of heads, and analyse those that are linear."""
    yield from in_units(
        work.runs,
        work.data,
        done=work.done,
        analyse=True,
        device=work.device,
        progress=work.progress,
    )


def in_units(
    runs: Iterable[Run],
    data: Mapping[str, Features],
    *,
    done: Callable[[Run], bool] = lambda run: False,
    analyse: bool = False,
    device: str = "auto",
    memory: int | None = None,
    progress: Tell | None = None,
) -> Iterator[list[Outcome]]:
    """Make the runs in units, and yield the outcomes of each unit at once.

    Numbers can differ in their last bits depending on what is trained beside them. Units depend on
    all the runs, finished ones included: a study that stops and resumes gets the same bits.

    Args:
        runs: as in ``execute``.
        data: as in ``execute``.
        done: the runs that are finished; a unit is skipped if all of its runs are.
        analyse: whether to analyse linear heads after each task (``Result.insight``).
        device: as in ``execute``.
        memory: as in ``execute``.
        progress: as in ``execute``, without the runs that are done.
    """
    chosen = choose_device(device)
    runs = list(runs)
    groups: dict[object, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.features, run.scenario, run.preset, run.subset].append(run)
    costs = costs_of(runs, data)
    settled, meter = 0, Meter(sum(costs[run] for run in runs if not done(run)), progress)
    meter.reach(0)  # the clock starts: what is half done when heads first report is not forgotten
    for group in groups.values():
        if not all(map(done, group)):
            yield from _make_group(group, costs, data, done, chosen, memory, meter, analyse)
            settled += sum(costs[run] for run in group if not done(run))
            meter.reach(settled)  # whatever they came to


def choose_device(name: str) -> torch.device:
    """Return the device that a name stands for; refuse a GPU where there is none."""
    expect(name, str, "device", "'auto', 'cpu' or 'cuda'")
    found = torch.cuda.is_available()
    devices = {"auto": "cuda" if found else "cpu", "cpu": "cpu", "cuda": "cuda"}
    if name == "cuda" and not found:
        raise OptionError("expected device 'cpu' or 'auto', since PyTorch finds no GPU, got 'cuda'")
    return torch.device(look_up(name, devices, "device"))


def _make_group(
    runs: list[Run],
    costs: Mapping[Run, int],
    data: Mapping[str, Features],
    done: Callable[[Run], bool],
    device: torch.device,
    memory: int | None,
    meter: Meter,
    analyse: bool,
) -> Iterator[list[Outcome]]:
    """Make runs that share their data."""
    left = [run for run in runs if not done(run)]
    try:
        group = gather(runs, look_up(runs[0].features, data, "features"), device)
    except LastLayerError as error:
        yield [Failure(run, str(error)) for run in left]
    else:
        threads = thread_count(device)
        budget = (default_memory(device) if memory is None else memory) // threads
        units = [
            unit
            for unit in units_of(group, costs, meter, budget, threads, analyse=analyse)
            if not all(done(runs[number]) for number in unit.numbers)
        ]
        # One core each holds for NumPy too, whose own threads would wait for each other.
        with blas_threads(1) if threads > 1 else nullcontext():
            yield from as_done(partial(_make, group), units, min(threads, len(units)))


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
