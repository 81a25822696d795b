"""Conducting a study: what its store does not hold yet is made, and kept as soon as it is there."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lastlayer.features import Features
from lastlayer.results.store import Store, open_store
from lastlayer.study.execute import choose_device, in_units
from lastlayer.study.meter import Tell
from lastlayer.study.prepare import Prepared
from lastlayer.study.record import columns_of, record
from lastlayer.study.replay_data import ReplayData
from lastlayer.study.replay_make import discard, make_replay
from lastlayer.study.replay_run import METHOD as REPLAY_METHOD
from lastlayer.study.result import AnyRun, Outcome
from lastlayer.study.run import METHOD, Run


@dataclass(frozen=True)
class Watch:
    """What is told of a study under way; ``on_progress`` comes from any thread."""

    on_start: Callable[[int, int], None] = lambda planned, kept: None  # runs
    on_progress: Tell | None = None
    on_kept: Callable[[list[Outcome]], None] = lambda outcomes: None
    on_wait: Callable[[], None] = lambda: None


def conduct(
    ready: Prepared,
    plan: str,
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
        plan: its text, kept with the results.
        out: the folder of the results.
        version: of the program, kept too.
        device: "auto", "cpu" or "cuda".
        wait: wait for another writer to end, instead of refusing.
        watch: told of what happens.
    """
    watch = watch or Watch()
    with open_store(out, wait, watch.on_wait) as store:
        data = {name: (_mark(known, METHOD), _about(known)) for name, known in ready.data.items()}
        data |= {
            name: (_mark(known, REPLAY_METHOD), known.about) for name, known in ready.images.items()
        }
        all_runs: dict[str, AnyRun] = {**ready.runs, **ready.replay}
        store.describe(plan, data, version=version)
        wanted = {
            digest: {**columns_of(run, ready.labels[digest]), "fingerprint": data[run.features][0]}
            for digest, run in all_runs.items()
        }
        states = store.plan(wanted)
        digests = {run: digest for digest, run in all_runs.items()}
        kept = {all_runs[digest] for digest, (_, state) in states.items() if state == "done"}
        watch.on_start(len(digests), len(kept))
        for runs in _generations(ready, states):
            for outcomes in in_units(
                runs,
                ready.data,
                done=kept.__contains__,
                analyse=True,
                device=device,
                progress=watch.on_progress,
            ):
                new = [outcome for outcome in outcomes if outcome.run not in kept]
                _keep(store, digests, new)
                watch.on_kept(new)
        left = [run for run in ready.replay.values() if run not in kept]
        checkpoints, where = out / "checkpoints", choose_device(device)
        for result in make_replay(left, ready.images, checkpoints, where, watch.on_progress):
            _keep(store, digests, [result])
            watch.on_kept([result])
        discard(ready.replay.values(), ready.images, checkpoints)  # killed after they were kept


def _generations(ready: Prepared, states: dict[str, tuple[int, str]]) -> list[list[Run]]:
    """Part the runs by the plan that they first appeared in: what is trained together stays so."""
    parts: dict[int, list[Run]] = defaultdict(list)
    for digest, run in ready.runs.items():
        parts[states[digest][0]].append(run)
    return [parts[generation] for generation in sorted(parts)]


def _keep(store: Store, digests: dict[AnyRun, str], outcomes: list[Outcome]) -> None:
    store.save([record(digests[outcome.run], outcome) for outcome in outcomes])


def _mark(data: Features | ReplayData, method: int) -> str:
    """Name data and method: when either changes, what was made before is of another study."""
    return f"{data.fingerprint}/{method}"


def _about(data: Features) -> dict[str, Any]:
    return {
        "names": {column: list(names) for column, names in data.names.items()},
        "origin": asdict(data.origin),
        "n_train": len(data.train),
        "n_test": len(data.test),
        "in_features": data.in_features,
    }
