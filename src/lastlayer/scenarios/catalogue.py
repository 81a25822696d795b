"""The scenarios that have a name: the paper's six, and two of ours."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from lastlayer.errors import DataError
from lastlayer.names import look_up
from lastlayer.scenarios.kinds import incremental, lifelong, mixed, nested
from lastlayer.scenarios.scenario import Data, Scenario, count_classes


@dataclass(frozen=True)
class Entry:
    """What a name stands for, and the data that it needs."""

    description: str
    features: str  # a bundled feature set, or the data set to extract or import
    columns: tuple[str, ...]  # the label columns it reads, the learned one last; (): the primary
    n_tasks: int
    n_classes: int
    make: Callable[..., Scenario]  # (data, label=…, order=…) → the scenario
    bundled: bool = False

    @property
    def source(self) -> str:
        """Say how to come by the features."""
        if self.bundled:
            return f"the bundled features '{self.features}': load_features(\"{self.features}\")"
        label, *domains = COLUMNS[self.features]
        kept = "".join(f" --domain {column}" for column in domains)
        out = f"--out {self.features}.safetensors"
        return (
            f"features of {self.features} with the label columns {', '.join((label, *domains))}, "
            f"made of its images by: lastlayer extract {self.features} --root DIR --backbone "
            f"resnet18 {out}; or of your embeddings by: lastlayer import {self.features}.parquet "
            f"--embedding z --label {label}{kept} --split split {out}"
        )


# The label columns of data sets that are not bundled, the primary one first.
COLUMNS = {"core50": ("object", "category", "session"), "cub200": ("class",)}


SCENARIOS = {
    "cifar10": Entry(
        "class-incremental, 5 tasks of 2 classes",
        "cifar10", (), 5, 10, partial(incremental, tasks=5), bundled=True,
    ),
    "core50": Entry(
        "class-incremental, 10 tasks of 5 objects",
        "core50", ("object",), 10, 50, partial(incremental, tasks=10),
    ),
    "cub200": Entry(
        "class-incremental, 10 tasks of 20 birds",
        "cub200", (), 10, 200, partial(incremental, tasks=10),
    ),
    "core10_lifelong": Entry(
        "lifelong, 8 tasks: one training environment each, 10 categories in all of them",
        "core50", ("session", "category"), 8, 10, partial(lifelong, by="session"),
    ),
    "cifar100_lifelong": Entry(
        "lifelong, 5 tasks: another fine class of each of the 20 coarse ones",
        "cifar100", ("fine", "coarse"), 5, 20, partial(nested, by="fine"),
        bundled=True,
    ),
    "core10_mix": Entry(
        "mixed, 50 tasks: one object each, labelled by 10 categories",
        "core50", ("object", "category"), 50, 10, partial(mixed, by="object"),
    ),
    "cifar100_mix": Entry(
        "mixed, 100 tasks: one fine class each, labelled by 20 coarse ones",
        "cifar100", ("fine", "coarse"), 100, 20, partial(mixed, by="fine"),
        bundled=True,
    ),
    "cifar100": Entry(
        "class-incremental, 10 tasks of 10 fine classes",
        "cifar100", ("fine",), 10, 100, partial(incremental, tasks=10), bundled=True,
    ),
}  # fmt: skip


def make_scenario(name: str, data: Data, order: int = 0) -> Scenario:
    """Make a scenario by its name; ``SCENARIOS`` holds them all.

    >>> from lastlayer import load_features
    >>> scenario = make_scenario("cifar100_lifelong", load_features("cifar100"), order=2)
    >>> scenario.order, [len(rows) for rows in scenario.tasks]
    ((2, 4, 1, 3, 0), [10000, 10000, 10000, 10000, 10000])
    """
    entry = look_up(name, SCENARIOS, "scenario")
    missing = [column for column in entry.columns if column not in data.train.labels]
    if missing:
        raise DataError(
            f"scenario '{name}' needs the label columns {', '.join(entry.columns)}, but the data "
            f"have {', '.join(data.train.labels)}; it needs {entry.source}"
        )
    label = entry.columns[-1] if entry.columns else data.train.label
    _expect(name, "classes", entry.n_classes, count_classes(data, label))
    scenario = entry.make(data, label=label, order=order)
    _expect(name, "tasks", entry.n_tasks, scenario.n_tasks)
    return replace(scenario, name=name)


def _expect(name: str, what: str, expected: int, found: int) -> None:
    if found != expected:
        raise DataError(
            f"scenario '{name}' has {expected} {what}, but the data give {found}; "
            f"it needs {SCENARIOS[name].source}"
        )
