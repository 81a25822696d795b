"""From a plan to its runs: features are found and scenarios tried before anything is run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lastlayer.errors import LastLayerError, MissingFileError, PlanError
from lastlayer.features import Features
from lastlayer.features.load import SHORT
from lastlayer.study.plan import Experiment, Plan, held_out_name
from lastlayer.study.replay_data import ReplayData, read_replay_data
from lastlayer.study.replay_run import ReplayRun
from lastlayer.study.run import Run
from lastlayer.study.scenario_spec import ScenarioSpec
from lastlayer.study.sources import find_features, hold_out
from lastlayer.training.replay.tasks import check_tasks


@dataclass(frozen=True, eq=False)
class Prepared:
    """The runs of a plan, and all that they need."""

    runs: dict[str, Run] = field(default_factory=dict)  # by digest; no two are the same
    labels: dict[str, str] = field(default_factory=dict)  # by digest: the column that is learned
    data: dict[str, Features] = field(default_factory=dict)  # by the name that runs call them
    missing: dict[str, str] = field(
        default_factory=dict
    )  # by name: why optional data are not there
    replay: dict[str, ReplayRun] = field(default_factory=dict)  # by digest: networks end to end
    images: dict[str, ReplayData] = field(default_factory=dict)  # by the name that they call them


def prepare(plan: Plan, folder: Path, root: Path | None = None) -> Prepared:
    """Find the features and images of a plan, and build each of its scenarios once.

    Args:
        plan: what is to be run.
        folder: where features lie that are not bundled, by their full names.
        root: where the official files of a data set lie that networks are trained on end to end.
    """
    ready = Prepared()
    for number, experiment in enumerate(plan.experiment):
        try:
            present = _load(experiment, folder, ready)
            learned = dict(_labels(experiment, present, ready.data))
            runs = [run for run in experiment.runs(plan) if run.features in present]
        except LastLayerError as error:
            raise PlanError(f"experiment[{number}]: {error}") from error
        for run in runs:
            digest = run.digest(ready.data[run.features].fingerprint)
            ready.runs.setdefault(digest, run)
            ready.labels.setdefault(digest, learned[run.features, run.scenario])
    for number, replay in enumerate(plan.replay):
        try:
            for network in replay.runs(plan.seeds):
                _prepare_replay(network, root, ready)
        except LastLayerError as error:
            raise PlanError(f"replay[{number}]: {error}") from error
    return ready


def _prepare_replay(run: ReplayRun, root: Path | None, ready: Prepared) -> None:
    """Read the images of a network, and refuse tasks that replay is not defined for."""
    if run.features not in ready.images:
        ready.images[run.features] = read_replay_data(run.dataset, root)
    data = ready.images[run.features]
    scenario = data.scenario(run.scenario, run.order)
    check_tasks(scenario.tasks, data.train.labels[scenario.label], run.rules.per_class)
    digest = run.digest(data.fingerprint)
    ready.replay.setdefault(digest, run)
    ready.labels.setdefault(digest, scenario.label)


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
