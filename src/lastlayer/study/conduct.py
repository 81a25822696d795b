"""A study: how long it will take, and making the runs that its store lacks.

Each run is saved as soon as it is finished.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch

from lastlayer.core.devices import choose_device
from lastlayer.core.progress import Tell
from lastlayer.errors import LastLayerError, MissingFileError
from lastlayer.evaluate.softmax import retrained_accuracy
from lastlayer.results import load_study
from lastlayer.results.columns import Kind
from lastlayer.results.store import open_store
from lastlayer.scenarios.scenario import count_classes
from lastlayer.study.prepare import Prepared
from lastlayer.study.result import Outcome, columns_of, record
from lastlayer.study.run import AnyRun, Forecast, Work

# How runs of each kind are made, and how long that takes, in the order in which a study makes
# them. Named, not imported: whole networks use this package, and not the other way round.
MAKERS: Mapping[Kind, str] = {
    "head": "lastlayer.study.execute:make_heads",
    "network": "lastlayer.replay.study.train_networks:make_networks",
}
FORECASTS: Mapping[Kind, str] = {
    "head": "lastlayer.study.execute:forecast_heads",
    "network": "lastlayer.replay.study.train_networks:forecast_networks",
}

Known = Mapping[str, Mapping[str, float]]  # features → label → the accuracy of retraining, 0 to 1


@dataclass(frozen=True)
class Callbacks:
    """What to call while a study runs; ``on_progress`` may be called from any thread."""

    on_start: Callable[[int, int], None] = lambda planned, kept: None  # runs
    on_progress: Tell | None = None
    on_kept: Callable[[list[Outcome]], None] = lambda outcomes: None
    on_wait: Callable[[], None] = lambda: None


def forecast(ready: Prepared, folder: Path, device: str = "auto") -> list[Forecast]:
    """Return what there is to run, what of it the folder lacks, and roughly how long that takes."""
    kept, chosen = _kept(folder), choose_device(device)
    return [
        row
        for kind, function in FORECASTS.items()
        if (runs := ready.of(kind))
        for row in resolve_name(function)(runs, ready.data, kept, chosen)
    ]


def _kept(folder: Path) -> set[str]:
    """Return the digests of the runs that are finished."""
    try:
        study = load_study(folder)
    except MissingFileError:
        return set()
    return {*study.done["digest"], *study.replay.filter(state="done")["digest"]}


def conduct(
    ready: Prepared,
    text: str,
    out: Path,
    *,
    version: str,
    device: str = "auto",
    wait: bool = False,
    callbacks: Callbacks | None = None,
) -> None:
    """Make all runs of a plan that the results in ``out`` do not hold yet.

    The text of the plan and the version of the program are kept with the results. While another
    process writes there it is refused, unless it is to ``wait`` for its end.
    """
    on = callbacks or Callbacks()
    with open_store(out, wait, on.on_wait) as store:
        # When data or method change, earlier results no longer count.
        marks = {
            run.features: f"{ready.data[run.features].fingerprint}/{run.method}"
            for run in ready.runs.values()
        }
        known = {
            name: by_label
            for name, (mark, by_label) in store.references().items()
            if by_label and marks.get(name) == mark
        }
        about = _about_all(ready, marks, known)
        store.describe(text, about, version=version)
        states = store.plan(
            {
                digest: {
                    **columns_of(run, ready.labels[digest]),
                    "fingerprint": marks[run.features],
                }
                for digest, run in ready.runs.items()
            }
        )
        digests = {run: digest for digest, run in ready.runs.items()}
        kept = {ready.runs[digest] for digest, (_, state) in states.items() if state == "done"}
        on.on_start(len(digests), len(kept))
        folder, done = out / "checkpoints", kept.__contains__
        for kind, runs in _together(ready, states):
            work = Work(runs, ready.data, done, device, folder, on.on_progress)
            for outcomes in resolve_name(MAKERS[kind])(work):
                new = [outcome for outcome in outcomes if outcome.run not in kept]
                store.save([record(digests[outcome.run], outcome) for outcome in new])
                on.on_kept(new)
        found = references(ready, known, choose_device(device))
        if found != known:
            store.describe(text, _about_all(ready, marks, found), version=version)


def references(ready: Prepared, known: Known, device: torch.device) -> dict[str, dict[str, float]]:
    """Return what retraining reaches on the data of a plan's heads, with what is known of it.

    Data that are too large to be retrained on, or that a regression cannot be trained on, have
    none: they are left out, and the study is complete without them.
    """
    found = {name: dict(by_label) for name, by_label in known.items()}
    labels = {(run.features, ready.labels[digest]) for digest, run in ready.of("head").items()}
    for name, label in sorted(labels):
        if label in known.get(name, {}):
            continue
        data = ready.data[name]
        try:
            accuracy = retrained_accuracy(data, label, count_classes(data, label), device)
        except LastLayerError:
            continue
        found.setdefault(name, {})[label] = accuracy
    return found


def _together(
    ready: Prepared, states: Mapping[str, tuple[int, str]]
) -> Iterator[tuple[Kind, list[AnyRun]]]:
    """Split the runs by kind and by the plan that they first appeared in.

    Numbers can differ in their last bits depending on what is trained beside them, so runs that
    were planned together stay together, however the plan grows.
    """
    for kind in MAKERS:
        parts: dict[int, list[AnyRun]] = defaultdict(list)
        for digest, run in ready.of(kind).items():
            parts[states[digest][0]].append(run)
        yield from ((kind, parts[generation]) for generation in sorted(parts))


def _about_all(
    ready: Prepared, marks: Mapping[str, str], references: Known
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what is kept of the data: their mark, what they are, and what retraining reaches."""
    return {
        name: (mark, _about(ready.data[name]) | {"references": dict(references.get(name, {}))})
        for name, mark in marks.items()
    }


def _about(data: Any) -> dict[str, Any]:
    """Return what is kept of features, or of the images of networks."""
    return {
        "names": {column: list(names) for column, names in data.names.items()},
        "origin": asdict(data.origin),
        "n_train": len(data.train),
        "n_test": len(data.test),
        "in_features": data.in_features,
    }
