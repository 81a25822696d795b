"""From a plan to its runs: features are found and scenarios built before anything runs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lastlayer.data import Features, load_features
from lastlayer.data.hold_out import stratified
from lastlayer.data.load import SHORT
from lastlayer.errors import LastLayerError, MissingFileError, PlanError, UnknownNameError
from lastlayer.results.columns import Kind
from lastlayer.study.plan_file import Experiment, Plan, held_out_name
from lastlayer.study.run import AnyRun


@dataclass(frozen=True, eq=False)
class Prepared:
    """The runs of a plan, and everything they need."""

    runs: dict[str, AnyRun] = field(default_factory=dict)  # by digest; no two are the same
    labels: dict[str, str] = field(default_factory=dict)  # by digest: the column that is learned
    data: dict[str, Any] = field(default_factory=dict)  # by the name that runs call them
    missing: dict[str, str] = field(default_factory=dict)  # by name: why optional data are not here

    def of(self, kind: Kind) -> dict[str, AnyRun]:
        """Return the runs of one kind, by digest."""
        return {digest: run for digest, run in self.runs.items() if run.kind == kind}

    def add(self, run: AnyRun, label: str) -> None:
        """Add a run whose data were found, and the column that it learns."""
        digest = run.digest(self.data[run.features].fingerprint)
        self.runs.setdefault(digest, run)
        self.labels.setdefault(digest, label)


def prepare(plan: Plan, folder: Path, root: Path | None = None) -> Prepared:
    """Find the features and images of a plan, and build each of its scenarios once.

    Features that are not bundled are in the folder, by their full names; below ``root`` are the
    official files of a data set, for networks trained end to end.
    """
    ready = Prepared()
    for number, experiment in enumerate(plan.experiment):
        try:
            present = _load(experiment, folder, ready)
            # Each scenario is built on each feature set: those that do not fit are refused.
            learned = {
                (name, str(scenario)): scenario.build(ready.data[name], order=0).label
                for name in present
                for scenario in experiment.scenario
            }
            runs = [run for run in experiment.runs(plan) if run.features in present]
        except LastLayerError as error:
            raise PlanError(f"experiment[{number}]: {error}") from error
        for run in runs:
            ready.add(run, learned[run.features, str(run.scenario)])
    for number, replay in enumerate(plan.replay):
        try:
            replay.prepare(plan.seeds, root, ready)
        except LastLayerError as error:
            raise PlanError(f"replay[{number}]: {error}") from error
    return ready


def _load(experiment: Experiment, folder: Path, ready: Prepared) -> list[str]:
    """Load an experiment's features; return the names of those that were found."""
    present = []
    for given in experiment.features:
        full, share = SHORT.get(given, given), experiment.held_out
        name = held_out_name(full, share)
        try:
            if name not in ready.data:
                whole = find_features(full, folder)
                ready.data[name] = whole if share is None else with_test_part(whole, share)
        except MissingFileError as error:
            if not experiment.optional:
                raise
            ready.missing[full] = str(error)
        else:
            present.append(name)
    return present


def find_features(name: str, folder: Path) -> Features:
    """Load features by a name that is bundled, a full name in the folder, or a file."""
    stored = folder / f"{name}.safetensors"
    if stored.is_file():
        return load_features(stored)
    try:
        return load_features(name)
    except UnknownNameError as error:
        if "/" not in name:
            raise
        dataset, _, backbone = name.partition("/")
        weights = " --weights FILE" if backbone.startswith("resnet20") else ""
        raise MissingFileError(
            f"no features '{name}': expected the file {stored}, made by: lastlayer extract "
            f"{dataset} --root DIR --backbone {backbone}{weights} --out {stored}"
        ) from error


def with_test_part(data: Features, share: float) -> Features:
    """Replace the test data by a share of each class held out of the training data."""
    train, test = map(data.train.take, stratified(data.train.y, share, seed=0))
    return Features(train, test, data.names, data.origin)
