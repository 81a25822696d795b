"""The card of each kind of scenario, and of each scenario that has a name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Drift = Literal["incremental", "lifelong", "mixed", "iid"]


@dataclass(frozen=True)
class KindCard:
    """A kind of scenario: what arrives with each task, and how it is written."""

    name: str
    description: str
    drift: Drift
    argument: Literal["tasks", "by"] | None  # what follows the colon; None: nothing does
    form: str  # how it is written; "/LABEL" may follow


_KINDS = (
    KindCard("incremental", "new classes with each task: 5 tasks", "incremental", "tasks",
             "incremental:5"),
    KindCard("lifelong", "all classes with each value of a column", "lifelong", "by",
             "lifelong:COLUMN"),
    KindCard("nested", "all classes with each task, another subclass of each", "lifelong", "by",
             "nested:COLUMN"),
    KindCard("mixed", "whatever comes with each value of a column", "mixed", "by",
             "mixed:COLUMN"),
    KindCard("iid", "everything at once", "iid", None, "iid"),
)  # fmt: skip

KINDS: Mapping[str, KindCard] = {card.name: card for card in _KINDS}


def forms_of_scenarios() -> str:
    """Return how a scenario is written, for --help and for errors.

    >>> forms_of_scenarios()
    'incremental:5, lifelong:COLUMN, nested:COLUMN, mixed:COLUMN, iid'
    """
    return ", ".join(card.form for card in KINDS.values())


@dataclass(frozen=True)
class ScenarioCard:
    """What a scenario's name stands for, and the data that it needs."""

    name: str
    description: str
    kind: str  # one of KINDS
    features: str  # a bundled feature set, or the data set to extract or import
    columns: tuple[str, ...]  # the label columns it reads, the learned one last; (): the primary
    n_tasks: int
    n_classes: int
    options: Mapping[str, Any] = field(default_factory=dict)  # of its kind: tasks=…, by=…
    bundled: bool = False

    @property
    def drift(self) -> Drift:
        """How its data change."""
        return KINDS[self.kind].drift

    @property
    def source(self) -> str:
        """How to get the features."""
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

_SCENARIOS = (
    ScenarioCard(
        "cifar10", "class-incremental, 5 tasks of 2 classes", "incremental",
        "cifar10", (), 5, 10, {"tasks": 5}, bundled=True,
    ),
    ScenarioCard(
        "core50", "class-incremental, 10 tasks of 5 objects", "incremental",
        "core50", ("object",), 10, 50, {"tasks": 10},
    ),
    ScenarioCard(
        "cub200", "class-incremental, 10 tasks of 20 birds", "incremental",
        "cub200", (), 10, 200, {"tasks": 10},
    ),
    ScenarioCard(
        "core10_lifelong",
        "lifelong, 8 tasks: one training environment each, 10 categories in all of them",
        "lifelong", "core50", ("session", "category"), 8, 10, {"by": "session"},
    ),
    ScenarioCard(
        "cifar100_lifelong", "lifelong, 5 tasks: another fine class of each of the 20 coarse ones",
        "nested", "cifar100", ("fine", "coarse"), 5, 20, {"by": "fine"}, bundled=True,
    ),
    ScenarioCard(
        "core10_mix", "mixed, 50 tasks: one object each, labelled by 10 categories",
        "mixed", "core50", ("object", "category"), 50, 10, {"by": "object"},
    ),
    ScenarioCard(
        "cifar100_mix", "mixed, 100 tasks: one fine class each, labelled by 20 coarse ones",
        "mixed", "cifar100", ("fine", "coarse"), 100, 20, {"by": "fine"}, bundled=True,
    ),
    ScenarioCard(
        "cifar100", "class-incremental, 10 tasks of 10 fine classes", "incremental",
        "cifar100", ("fine",), 10, 100, {"tasks": 10}, bundled=True,
    ),
)  # fmt: skip

SCENARIOS: Mapping[str, ScenarioCard] = {card.name: card for card in _SCENARIOS}


def drift_of(scenario: str) -> Drift | None:
    """Return how the data of a scenario change, by its name or kind; None for neither.

    >>> drift_of("cifar100_mix"), drift_of("nested:fine/coarse"), drift_of("iid/class")
    ('mixed', 'lifelong', 'iid')
    """
    name = scenario.partition("/")[0].partition(":")[0]
    if name in SCENARIOS:
        return SCENARIOS[name].drift
    return KINDS[name].drift if name in KINDS else None
