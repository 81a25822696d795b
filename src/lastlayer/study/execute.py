"""Making runs: those that share data go together, and each ends as a result or a failure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import torch

from lastlayer.errors import LastLayerError, OptionError
from lastlayer.features import Features
from lastlayer.names import look_up
from lastlayer.study.group import Group, gather
from lastlayer.study.meter import Meter, Tell
from lastlayer.study.result import Failure, Result
from lastlayer.study.run import Run
from lastlayer.training.feed import feed
from lastlayer.training.fleet import Member, train_fleet
from lastlayer.training.plan import Job, default_memory, plan
from lastlayer.training.pool import Rules, Score

RULES = Rules()
Outcome = Result | Failure


def execute(
    runs: Iterable[Run],
    data: Mapping[str, Features],
    *,
    device: str = "auto",
    memory: int | None = None,
    progress: Tell | None = None,
) -> Iterator[Outcome]:
    """Make the runs, and give each one's outcome as soon as it is there, in no certain order.

    Args:
        runs: what to make.
        data: the features by the name that the runs call them.
        device: "cpu", "cuda", or "auto": a GPU where there is one.
        memory: bytes that training may take besides the data; None: a modest part of what is there.
        progress: called with the work done and all there is, in samples seen by heads.

    >>> from lastlayer import load_features
    >>> from lastlayer.study import ScenarioSpec
    >>> run = Run("cifar10", ScenarioSpec("iid"), "mean")
    >>> (result,) = execute([run], {"cifar10": load_features("cifar10")})
    >>> round(result.final, 4)
    0.6326
    """
    chosen = choose_device(device)
    runs = list(runs)
    groups: dict[object, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.features, run.scenario, run.preset, run.subset].append(run)
    sizes = {name: len(features.train) for name, features in data.items()}
    meter = Meter(runs, sizes, RULES.epochs, progress)
    for group in groups.values():
        yield from _make_group(group, data, chosen, memory, meter)


def choose_device(name: str) -> torch.device:
    """Give the device that is meant, or say that it is not there."""
    found = torch.cuda.is_available()
    devices = {"auto": "cuda" if found else "cpu", "cpu": "cpu", "cuda": "cuda"}
    if name == "cuda" and not found:
        raise OptionError("expected device 'cpu' or 'auto', got 'cuda', but PyTorch finds no GPU")
    return torch.device(look_up(name, devices, "device"))


def _make_group(
    runs: list[Run],
    data: Mapping[str, Features],
    device: torch.device,
    memory: int | None,
    meter: Meter,
) -> Iterator[Outcome]:
    """Make runs that share their data: all gradient heads at once, then head by head."""
    try:
        group = gather(runs, look_up(runs[0].features, data, "features"), device)
    except LastLayerError as error:
        yield from (Failure(run, str(error)) for run in runs)
    else:
        parts: dict[str, list[int]] = defaultdict(list)
        for number, run in enumerate(runs):
            parts["gradient" if run.by_gradient else run.head].append(number)
        for numbers in parts.values():
            make = _train if runs[numbers[0]].by_gradient else _feed
            yield from _outcomes(group, numbers, make(group, numbers, meter, memory))
    meter.settle(runs)


def _outcomes(
    group: Group, numbers: list[int], scores: Iterator[tuple[int, Score]]
) -> Iterator[Outcome]:
    """Give the results as they come; an error fails those that are still to come."""
    left = dict.fromkeys(numbers)
    try:
        for number, score in scores:
            left.pop(number)
            yield group.result(number, score)
    except LastLayerError as error:
        yield from (Failure(group.runs[number], str(error)) for number in left)


def _train(
    group: Group, numbers: list[int], meter: Meter, memory: int | None
) -> Iterator[tuple[int, Score]]:
    """Train the gradient heads in as few fleets as the memory allows."""
    runs = [group.runs[number] for number in numbers]
    members = [Member(run.head, run.mask, run.lr, run.seed) for run in runs]
    streams = [group.streams[number] for number in numbers]
    jobs = [Job(stream, member) for stream, member in zip(streams, members, strict=True)]
    budget = default_memory(group.pool.z.device) if memory is None else memory
    for fleet in plan(jobs, group.pool, RULES, budget):
        crew = [[members[job] for job in of_stream] for of_stream in fleet.jobs]
        scores = train_fleet(
            group.pool, fleet.streams, crew, runs[0].preset, RULES, meter.times(len(crew[0]))
        )
        for of_stream, jobs_of_stream in zip(scores, fleet.jobs, strict=True):
            for score, job in zip(of_stream, jobs_of_stream, strict=True):
                yield numbers[job], score


def _feed(
    group: Group, numbers: list[int], meter: Meter, memory: int | None
) -> Iterator[tuple[int, Score]]:
    """Feed the streams to heads of one name that learn in one pass, one at a time."""
    run = group.runs[numbers[0]]
    streams = [group.streams[number] for number in numbers]
    scores = feed(
        group.pool, streams, run.head, run.preset, RULES, on_task=meter.times(RULES.epochs)
    )
    yield from zip(numbers, scores, strict=True)
