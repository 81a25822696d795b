"""Conducting a study: runs that its store lacks are made, and saved as soon as they finish."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lastlayer.progress import Tell
from lastlayer.results.store import open_store
from lastlayer.study.heads.execute import choose_device
from lastlayer.study.kinds import WORKSHOPS
from lastlayer.study.prepare import Prepared
from lastlayer.study.record import columns_of, record
from lastlayer.study.references import Known, references
from lastlayer.study.result import Outcome
from lastlayer.study.run import AnyRun, Maker, RunData, Work


@dataclass(frozen=True)
class Watch:
    """What to call while a study runs; ``on_progress`` may be called from any thread."""

    on_start: Callable[[int, int], None] = lambda planned, kept: None  # runs
    on_progress: Tell | None = None
    on_kept: Callable[[list[Outcome]], None] = lambda outcomes: None
    on_wait: Callable[[], None] = lambda: None


def conduct(
    ready: Prepared,
    text: str,
    out: Path,
    *,
    version: str,
    device: str = "auto",
    wait: bool = False,
    watch: Watch | None = None,
) -> None:
    """Make all runs of a plan that the results in ``out`` do not hold yet.

    Args:
        ready: the plan's runs and data.
        text: the plan as it is written, kept with the results.
        out: the folder of the results.
        version: of the program, kept too.
        device: "auto", "cpu" or "cuda".
        wait: whether to wait for another writer to finish, instead of refusing.
        watch: called as the study proceeds.
    """
    watch = watch or Watch()
    with open_store(out, wait, watch.on_wait) as store:
        marks = {run.features: _mark(run, ready.data[run.features]) for run in ready.runs.values()}
        known = {
            name: by_label
            for name, (mark, by_label) in store.references().items()
            if by_label and marks.get(name) == mark  # else the data or the method have changed
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
        watch.on_start(len(digests), len(kept))
        folder, done = out / "checkpoints", kept.__contains__
        for make, runs in _together(ready, states):
            work = Work(runs, ready.data, done, device, folder, watch.on_progress)
            for outcomes in make(work):
                new = [outcome for outcome in outcomes if outcome.run not in kept]
                store.save([record(digests[outcome.run], outcome) for outcome in new])
                watch.on_kept(new)
        found = references(ready, known, choose_device(device))
        if found != known:
            store.describe(text, _about_all(ready, marks, found), version=version)


def _together(
    ready: Prepared, states: Mapping[str, tuple[int, str]]
) -> Iterator[tuple[Maker, list[AnyRun]]]:
    """Split the runs by kind and by the plan that they first appeared in.

    Numbers can differ in their last bits depending on what is trained beside them, so runs that
    were planned together stay together, however the plan grows.
    """
    for kind, workshop in WORKSHOPS.items():
        parts: dict[int, list[AnyRun]] = defaultdict(list)
        for digest, run in ready.of(kind).items():
            parts[states[digest][0]].append(run)
        yield from ((workshop.make, parts[generation]) for generation in sorted(parts))


def _mark(run: AnyRun, data: RunData) -> str:
    """Return a name for data and method: when either changes, earlier results no longer count."""
    return f"{data.fingerprint}/{run.method}"


def _about_all(
    ready: Prepared, marks: Mapping[str, str], references: Known
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what is kept of the data: their mark, what they are, and what retraining reaches."""
    return {
        name: (mark, _about(ready.data[name]) | {"references": dict(references.get(name, {}))})
        for name, mark in marks.items()
    }


def _about(data: RunData) -> dict[str, Any]:
    return {
        "names": {column: list(names) for column, names in data.names.items()},
        "origin": asdict(data.origin),
        "n_train": len(data.train),
        "n_test": len(data.test),
        "in_features": data.in_features,
    }
