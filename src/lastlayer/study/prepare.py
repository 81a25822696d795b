"""From a plan to its runs: features are found and scenarios tried before anything is run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lastlayer.errors import LastLayerError, MissingFileError, PlanError
from lastlayer.features import Features
from lastlayer.features.catalogue import SHORT
from lastlayer.study.plan import Experiment, Plan, held_out_name
from lastlayer.study.run import Run
from lastlayer.study.scenario_spec import ScenarioSpec
from lastlayer.study.sources import find_features, hold_out


@dataclass(frozen=True, eq=False)
class Prepared:
    """The runs of a plan, and all that they need."""

    runs: dict[str, Run] = field(default_factory=dict)  # by digest; no two are the same
    labels: dict[str, str] = field(default_factory=dict)  # by digest: the column that is learned
    data: dict[str, Features] = field(default_factory=dict)  # by the name that runs call them
    missing: dict[str, str] = field(
        default_factory=dict
    )  # by name: why optional data are not there


def prepare(plan: Plan, folder: Path) -> Prepared:
    """Find the features of a plan, and build each of its scenarios once.

    Args:
        plan: what is to be run.
        folder: where features lie that are not bundled, by their full names.
    """
    ready = Prepared()
    for number, experiment in enumerate(plan.experiment):
        try:
            present = _load(experiment, folder, ready)
            learned = dict(_labels(experiment, present, ready.data))
        except LastLayerError as error:
            raise PlanError(f"experiment[{number}]: {error}") from error
        for run in experiment.runs(plan):
            if run.features in present:
                digest = run.digest(ready.data[run.features].fingerprint)
                ready.runs.setdefault(digest, run)
                ready.labels.setdefault(digest, learned[run.features, run.scenario])
    return ready


def _load(experiment: Experiment, folder: Path, ready: Prepared) -> list[str]:
    """Load an experiment's features; give the names of those that are there."""
    present = []
    for given in experiment.features:
        full, share = SHORT.get(given, given), experiment.held_out
        name = held_out_name(full, share)
        try:
            if name not in ready.data:
                whole = find_features(full, folder)
                ready.data[name] = whole if share is None else hold_out(whole, share)
        except MissingFileError as error:
            if not experiment.optional:
                raise
            ready.missing[full] = str(error)
        else:
            present.append(name)
    return present


def _labels(
    experiment: Experiment, present: list[str], data: Mapping[str, Features]
) -> Iterator[tuple[tuple[str, ScenarioSpec], str]]:
    """Build each scenario on each feature set, which refuses what does not fit."""
    for name in present:
        for scenario in experiment.scenario:
            yield (name, scenario), scenario.build(data[name], order=0).label
