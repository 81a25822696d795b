"""A user's stream: rows, labels and tasks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from lastlayer.catalogue.scenario_cards import SCENARIOS
from lastlayer.core.names import first_few, look_up
from lastlayer.core.tensors import PIECE, first_bad_row
from lastlayer.data import Features, FeatureSet
from lastlayer.data.features import TrainingFeatures
from lastlayer.errors import DataError, LabelError, OptionError
from lastlayer.evaluate.pool import Pool
from lastlayer.scenarios import Scenario, ScenarioSpec, iid


class _TrainOnly(NamedTuple):
    """Data as scenarios expect them, without a test split."""

    train: FeatureSet
    test: FeatureSet


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream of training rows, in the order of its tasks."""

    z: Tensor  # (n, h) training features as stored
    y: Tensor  # (n,) int64, the column that is learned
    tasks: tuple[Tensor, ...]  # rows of each task
    n_classes: int
    names: tuple[str, ...]  # of the classes
    label: str
    source: str | None = None  # the label column that says which source a row comes from
    group: Tensor | None = None  # (n,) the source of each row: its rows stay together
    test: FeatureSet | None = None
    validation: FeatureSet | None = None
    columns: Mapping[str, Tensor] = field(default_factory=dict)  # all label columns
    column_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of their values
    task_names: tuple[str, ...] = ()  # where each task is one value of a column
    notes: tuple[str, ...] = ()  # what was done to the stream that was asked for
    known_sources: int = 0  # test rows whose source is among those of the training rows

    @property
    def n_tasks(self) -> int:
        """How many tasks there are."""
        return len(self.tasks)

    @property
    def test_z(self) -> Tensor | None:
        """The features of the test rows."""
        return None if self.test is None else self.test.z

    @property
    def test_y(self) -> Tensor | None:
        """The classes of the test rows."""
        return None if self.test is None else self.test.labels[self.label]

    @property
    def pool(self) -> Pool:
        """The samples that heads learn from."""
        return Pool(self.z, self.y, self.z[:0], self.y[:0], self.n_classes)

    @cached_property
    def task_of(self) -> Tensor:
        """The task of each row, (n,); −1: of none."""
        task = torch.full((len(self.y),), -1)
        for number, rows in enumerate(self.tasks):
            task[rows] = number
        return task

    @cached_property
    def rows(self) -> Tensor:
        """The rows that are in some task, ascending."""
        return (self.task_of >= 0).nonzero()[:, 0]


def lay_out(
    data: Features | TrainingFeatures | FeatureSet,
    scenario: str | ScenarioSpec | Scenario | None,
    group: str | None = None,
) -> Stream:
    """Lay a stream out; without a scenario everything comes at once.

    The label column ``group`` says which source a row comes from.

    >>> import lastlayer as ll
    >>> stream = lay_out(ll.load_features("cifar10"), "incremental:3")
    >>> stream.notes
    ('10 classes do not divide evenly into 3 tasks, so the tasks get 4, 3, 3.',)
    """
    whole = None if isinstance(data, FeatureSet) else data
    train: FeatureSet = data if isinstance(data, FeatureSet) else data.train
    validation = data.validation if isinstance(data, Features) else None
    fresh = {"test": None if whole is None else whole.test, "validation": validation}
    for split, rows in {"training": train, **fresh}.items():
        if rows is not None and (row := first_bad_row(rows.z)) is not None:
            raise DataError(f"features must be finite, got NaN or infinity in {split} row {row}")
    spec = ScenarioSpec.parse(scenario) if isinstance(scenario, str) else scenario
    notes: tuple[str, ...] = ()
    if isinstance(spec, ScenarioSpec):
        spec, notes = _evenly(spec, train)
    both = whole if isinstance(whole, Features) else _TrainOnly(train, train)
    if isinstance(spec, Scenario):
        found = spec
    else:
        found = iid(both) if spec is None else spec.build(both, order=0)
    y = train.labels[found.label]
    n_classes = 1 + int(y.max())
    names = whole.names[found.label] if whole is not None else tuple(map(str, range(n_classes)))
    known = {
        split: rows if rows is not None and found.label in rows.labels else None
        for split, rows in fresh.items()
    }
    stream = Stream(
        z=train.z,
        y=y,
        tasks=found.tasks,
        n_classes=max(n_classes, len(names)),
        names=names,
        label=found.label,
        source=group,
        group=None if group is None else look_up(group, train.labels, "label column"),
        test=known["test"],
        validation=known["validation"],
        columns={name: column for name, column in train.labels.items() if name != group},
        column_names={} if whole is None else {k: tuple(v) for k, v in whole.names.items()},
        notes=notes,
        known_sources=_known_sources(group, train, known["test"]),
    )
    return _named_tasks(stream, spec, whole)


def _known_sources(group: str | None, train: FeatureSet, test: FeatureSet | None) -> int:
    if group is None or test is None or group not in test.labels:
        return 0
    return int(torch.isin(test.labels[group], train.labels[group]).sum())


def _evenly(spec: ScenarioSpec, train: FeatureSet) -> tuple[ScenarioSpec, tuple[str, ...]]:
    """Divide classes as evenly as possible where the tasks asked for do not divide them."""
    if spec.kind != "incremental" or not isinstance(spec.tasks, int):
        return spec, ()
    label = spec.label or train.label
    n_classes = 1 + int(look_up(label, train.labels, "label column").max())
    if spec.tasks < 1 or spec.tasks > n_classes:
        raise OptionError(
            f"tasks must be at least 1 and at most one for each of the {n_classes} classes, got "
            f"{spec.tasks}"
        )
    if n_classes % spec.tasks == 0:
        return spec, ()
    few, more = divmod(n_classes, spec.tasks)
    sizes = (few + 1,) * more + (few,) * (spec.tasks - more)
    note = (
        f"{n_classes} classes do not divide evenly into {spec.tasks} tasks, so the tasks get "
        f"{', '.join(map(str, sizes))}."
    )
    return replace(spec, tasks=sizes), (note,)


def _named_tasks(stream: Stream, spec: object, whole: Features | TrainingFeatures | None) -> Stream:
    """Name the tasks by the column that makes them, and note gaps in it."""
    column = spec.by if isinstance(spec, ScenarioSpec) else None
    if isinstance(spec, ScenarioSpec) and spec.kind in SCENARIOS:
        column = SCENARIOS[spec.kind].options.get("by")
    if column is None or whole is None or column not in stream.columns:
        return stream
    values = [stream.columns[column][rows].unique() for rows in stream.tasks]
    if any(len(value) != 1 for value in values):
        return stream
    names = tuple(whole.names[column][int(value)] for value in values)
    gaps = gaps_in(names)
    notes = (f"'{column}' has gaps: nothing came in {first_few(gaps)}.",) if gaps else ()
    return replace(stream, task_names=names, notes=(*stream.notes, *notes))


def gaps_in(names: tuple[str, ...]) -> list[str]:
    """Return what is missing between whole numbers, or between months, that are nearly complete.

    >>> gaps_in(("1", "2", "4")), gaps_in(("2023-11", "2024-02")), gaps_in(("a", "b"))
    (['3'], ['2023-12', '2024-01'], [])
    """
    numbers = [_moment(name) for name in names]
    found = sorted(number for number in numbers if number is not None)
    if len(found) < len(names) or len(found) < 2 or found[-1] - found[0] > 20 * len(found):
        return []
    missing = sorted(set(range(found[0], found[-1])) - set(found))
    months = "-" in names[0].lstrip("-")
    return [f"{m // 12:04d}-{m % 12 + 1:02d}" if months else str(m) for m in missing]


def _moment(name: str) -> int | None:
    """Read a whole number, or a month as the number of months since the year 0."""
    year, dash, month = name.partition("-")
    if dash and year.isdigit() and month.isdigit() and len(year) == 4 and 1 <= int(month) <= 12:
        return 12 * int(year) + int(month) - 1
    try:
        return int(name)
    except ValueError:
        return None


def feature_scale(z: Tensor, rows: Tensor, norm: float) -> float:
    """Return the number to divide rows by so that their root mean square norm is ``norm``.

    >>> feature_scale(torch.tensor([[3.0, 4.0], [0.0, 5.0], [9.0, 9.0]]), torch.arange(2), norm=1.0)
    5.0
    """
    parts = rows.split(max(1, PIECE // z.shape[1]))  # all at once would be a copy of the file
    largest = max(float(z[part].abs().max()) for part in parts) or 1.0
    total = sum(float((z[part].double() / largest).square().sum()) for part in parts)
    return largest * math.sqrt(total / len(rows)) / norm or 1.0


def check_classes(stream: Stream) -> None:
    """Refuse data that no head can be chosen on."""
    if len(stream.y[stream.rows].unique()) < 2:
        only = stream.names[int(stream.y[stream.rows][0])]
        raise LabelError(
            f"'{stream.label}' must have at least two classes to choose a head for, got only "
            f"'{only}': every head would predict it"
        )
