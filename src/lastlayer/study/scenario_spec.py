"""A scenario in words: small, hashable, and independent of data; ``build`` makes it from data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeAlias

from lastlayer import catalogue
from lastlayer.arguments import expect, whole
from lastlayer.catalogue import SCENARIOS
from lastlayer.errors import DataError, OptionError, UnknownNameError
from lastlayer.names import look_up
from lastlayer.scenarios import (
    Scenario,
    iid,
    incremental,
    lifelong,
    make_scenario,
    mixed,
    nested,
)
from lastlayer.scenarios.orders import task_order
from lastlayer.scenarios.scenario import Data


def _iid(data: Data, order: int, label: str | None = None) -> Scenario:
    """Return the single task, whatever the order."""
    return iid(data, label)


KINDS: Mapping[str, Callable[..., Scenario]] = {
    "incremental": incremental,
    "lifelong": lifelong,
    "nested": nested,
    "mixed": mixed,
    "iid": _iid,
}


def _known() -> Mapping[str, Callable[..., Scenario]]:
    """Return the function that makes each kind, and each scenario that has a card now."""
    return {**KINDS, **{name: partial(make_scenario, name) for name in SCENARIOS}}


@dataclass(frozen=True)
class ScenarioSpec:
    """A name of the catalogue, or a kind of drift with its argument.

    Written out, it is the name, or "kind:argument", and "/label" where a label column is named:

    >>> spec = ScenarioSpec.parse("mixed:fine/coarse")
    >>> spec
    ScenarioSpec(kind='mixed', tasks=None, by='fine', label='coarse')
    >>> str(spec), str(ScenarioSpec("incremental", tasks=5)), str(ScenarioSpec("cifar10"))
    ('mixed:fine/coarse', 'incremental:5', 'cifar10')
    >>> from lastlayer import load_features
    >>> spec.build(load_features("cifar100"), order=0).n_tasks
    100
    """

    kind: str
    tasks: int | tuple[int, ...] | None = None  # incremental: how many, or the classes of each
    by: str | None = None  # lifelong, nested, mixed: the column that makes the tasks
    label: str | None = None  # the column that is learned; None: the primary one

    def __post_init__(self) -> None:
        """Check that the kind has its argument and no other."""
        expect(self.kind, str, "kind", "the name or kind of a scenario")
        for name in ("by", "label"):
            expect(getattr(self, name), (str, type(None)), name, "the name of a label column")
        _check_kind(self.kind)
        if self.tasks is not None:
            object.__setattr__(self, "tasks", _checked(self.tasks))
        if isinstance(self.tasks, tuple) and len(self.tasks) < 2:
            raise OptionError(
                f"expected the classes of at least two tasks, got {list(self.tasks)}: one task of "
                "all classes is scenario iid"
            )
        for name in ("tasks", "by"):
            given, needed = getattr(self, name), _argument(self.kind) == name
            if needed and given in (None, ""):
                raise OptionError(
                    f"scenario '{self.kind}' needs '{name}': write "
                    f"{catalogue.KINDS[self.kind].form}"
                )
            if given is not None and not needed:
                raise OptionError(f"scenario '{self.kind}' takes no '{name}', got {given!r}")
        if self.label is not None and self.kind in SCENARIOS:
            raise OptionError(f"scenario '{self.kind}' has its own label, got '{self.label}'")

    @classmethod
    def parse(cls, text: str) -> "ScenarioSpec":
        """Read what ``str`` writes."""
        expect(text, str, "text", "a scenario such as 'incremental:5'")
        rest, _, label = text.partition("/")
        kind, colon, argument = rest.partition(":")
        given: dict[str, Any] = {"label": label or None}
        if colon:
            name = _argument(kind) or "by"
            given[name] = _numbers(argument) if name == "tasks" else argument
        return cls(kind, **given)

    def build(self, data: Data, order: int) -> Scenario:
        """Make the scenario from the data's labels."""
        given = {"tasks": self.tasks, "by": self.by, "label": self.label}
        return _known()[self.kind](
            data, order=order, **{name: value for name, value in given.items() if value is not None}
        )

    @property
    def signature(self) -> str:
        """The text that stands for it in the digest of a run."""
        return str(self)

    def __str__(self) -> str:
        tasks = (self.tasks,) if isinstance(self.tasks, int) else self.tasks or ()
        argument = self.by or ",".join(map(str, tasks))
        return ":".join(filter(None, (self.kind, argument))) + (
            f"/{self.label}" if self.label else ""
        )


@dataclass(frozen=True, eq=False)
class GivenScenario:
    """A scenario that is already made, as a run takes it; an order permutes its tasks.

    >>> from lastlayer import load_features, make_scenario
    >>> data = load_features("cifar10")
    >>> given = GivenScenario(make_scenario("cifar10", data))
    >>> str(given), given.build(data, order=1).order
    ('cifar10', (2, 1, 4, 0, 3))
    """

    scenario: Scenario

    kind = "given"

    @property
    def label(self) -> str:
        """The column that is learned."""
        return self.scenario.label

    @property
    def signature(self) -> str:
        """What stands for it in the digest of a run: its rows, not its name."""
        content = sha256(f"{self.label} {self.scenario.n_classes}".encode())
        for rows in (*self.scenario.tasks, *(self.scenario.test_tasks or ())):
            content.update(f" {len(rows)} ".encode() + rows.numpy().tobytes())
        return f"given:{content.hexdigest()}"

    def build(self, data: Data, order: int) -> Scenario:
        """Return its tasks in another order; 0: as they are."""
        _check_rows(self.scenario, data)
        permutation = task_order(self.scenario.n_tasks, order)
        tests = self.scenario.test_tasks
        return replace(
            self.scenario,
            tasks=tuple(self.scenario.tasks[task] for task in permutation),
            test_tasks=None if tests is None else tuple(tests[task] for task in permutation),
            order=permutation,
        )

    def __str__(self) -> str:
        return self.scenario.name


AnyScenario: TypeAlias = ScenarioSpec | GivenScenario


def _argument(kind: str) -> str | None:
    """Return the name of what follows the colon; None: nothing does."""
    return catalogue.KINDS[kind].argument if kind in catalogue.KINDS else None


def _check_kind(kind: str) -> None:
    """Refuse an unknown scenario; say how each kind is written."""
    try:
        look_up(kind, _known(), "scenario")
    except UnknownNameError as error:
        forms = catalogue.forms_of_scenarios()
        raise UnknownNameError(f"{error}; a kind is written as one of {forms}") from None


def _check_rows(scenario: Scenario, data: Data) -> None:
    """Refuse a scenario that was made from other data."""
    for split, tasks in ((data.train, scenario.tasks), (data.test, scenario.test_tasks or ())):
        y = look_up(scenario.label, split.labels, "label column")
        last = max((int(rows.max()) for rows in tasks if len(rows)), default=-1)
        if last >= len(y) or int(y.max()) >= scenario.n_classes:
            raise DataError(
                f"expected a scenario made from these data, but {scenario} asks for row {last} of "
                f"{len(y)}, and there is a class {int(y.max())}"
            )


def _checked(tasks: Any) -> int | tuple[int, ...]:
    """Take a number of tasks, or the classes of each."""
    if isinstance(tasks, list | tuple):
        return tuple(whole(n, "the classes of a task") for n in tasks)
    return whole(tasks, "tasks")


def _numbers(text: str) -> int | tuple[int, ...]:
    """Read "5" as five tasks, "4,3,3" as the classes of each of three."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(
            f"expected a number of tasks, or the classes of each (4,3,3), got '{text}'"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers
