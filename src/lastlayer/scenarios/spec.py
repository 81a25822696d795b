"""A scenario in words: small, hashable, and independent of data; ``build`` makes it from data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeAlias

from lastlayer.catalogue.scenario_cards import KINDS, SCENARIOS, ScenarioCard, forms_of_scenarios
from lastlayer.core.checks import expect, whole
from lastlayer.core.names import look_up
from lastlayer.errors import DataError, OptionError, UnknownNameError
from lastlayer.scenarios import kinds
from lastlayer.scenarios.scenario import Data, Scenario, count_classes, learned, task_order


def make_scenario(text: str, data: Data, order: int = 0) -> Scenario:
    """Make a scenario by its name or kind, written as in ``--scenario`` and in plans.

    Args:
        text: A name of ``lastlayer.catalogue.SCENARIOS``, or a kind with its argument:
            ``incremental:5``, ``mixed:session``; with ``/LABEL`` at the end, that label is learned.
        data: The training and test split.
        order: The seed of the order of tasks; 0 leaves them ascending.

    >>> from lastlayer import load_features
    >>> scenario = make_scenario("cifar100_lifelong", load_features("cifar100"), order=2)
    >>> scenario.order, [len(rows) for rows in scenario.tasks]
    ((2, 4, 1, 3, 0), [10000, 10000, 10000, 10000, 10000])
    >>> make_scenario("incremental:2", load_features("cifar10"))
    Scenario(incremental: 10 classes, tasks of 25000, 25000 rows)
    """
    return ScenarioSpec.parse(text).build(data, order)


@dataclass(frozen=True)
class ScenarioSpec:
    """A name of the catalogue, or a kind of scenario with its argument.

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
        for name in ("tasks", "by"):
            given, needed = getattr(self, name), _argument(self.kind) == name
            if needed and given in (None, ""):
                raise OptionError(
                    f"scenario '{self.kind}' needs '{name}': write {KINDS[self.kind].form}"
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

    @classmethod
    def from_options(
        cls,
        scenario: str | None,
        incremental: str | None,
        by: str | None,
        label: str | None = None,
        features: str = "",
        otherwise: str | None = None,
    ) -> "ScenarioSpec":
        """Return the scenario that the options of a command describe, or else ``otherwise``.

        One that learns another column than ``label`` is refused. ``features`` is their short name:
        bundled ones have a default scenario.

        >>> str(ScenarioSpec.from_options(None, "4,3,3", None))
        'incremental:4,3,3'
        >>> str(ScenarioSpec.from_options(None, None, None, features="cifar10"))
        'cifar10'
        """
        classes, values = incremental and f"incremental:{incremental}", by and f"mixed:{by}"
        given = [text for text in (scenario, classes, values) if text]
        if not given and features in SCENARIOS and SCENARIOS[features].bundled:
            given = [features]
        given = given or [otherwise or ""]
        if given == [""]:
            raise OptionError(
                "say how the rows come: --incremental 5 (new classes in each of 5 tasks), --by "
                "COLUMN (a task for each of its values), or --scenario iid if they have no order; "
                "`lastlayer list scenarios` shows the others"
            )
        if len(given) > 1:
            raise OptionError(
                "--scenario, --incremental and --by exclude each other: choose one, got "
                f"{' and '.join(given)}"
            )
        spec = cls.parse(given[0])
        columns = SCENARIOS[spec.kind].columns if spec.kind in SCENARIOS else ()
        own = columns[-1] if columns else spec.label
        if label is not None and own not in (None, label):
            raise OptionError(
                f"scenario '{spec}' learns '{own}', got --label {label}: choose another scenario "
                "with --scenario, --incremental or --by"
            )
        return spec

    def build(self, data: Data, order: int) -> Scenario:
        """Make the scenario from the data's labels."""
        if self.kind in SCENARIOS:
            return _build_named(SCENARIOS[self.kind], data, order)
        given = {"tasks": self.tasks, "by": self.by, "label": self.label}
        return _function(self.kind)(
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


def _function(kind: str) -> Callable[..., Scenario]:
    """Return the function that makes a kind: the one of its name."""
    made: Callable[..., Scenario] = getattr(kinds, kind)
    return made


def _build_named(card: ScenarioCard, data: Data, order: int) -> Scenario:
    """Make the scenario of a card, and check that the data are those that it is meant for."""
    primary = learned(data, None)
    missing = [column for column in card.columns if column not in data.train.labels]
    if missing:
        raise DataError(
            f"scenario '{card.name}' needs the label columns {', '.join(card.columns)}, but the "
            f"data have {', '.join(data.train.labels)}; it needs {card.source}"
        )
    label = card.columns[-1] if card.columns else primary
    _check_count(card, "classes", card.n_classes, count_classes(data, label))
    scenario = _function(card.kind)(data, label=label, order=order, **card.options)
    _check_count(card, "tasks", card.n_tasks, scenario.n_tasks)
    return replace(scenario, name=card.name)


def _check_count(card: ScenarioCard, what: str, expected: int, found: int) -> None:
    if found != expected:
        raise DataError(
            f"scenario '{card.name}' has {expected} {what}, but the data have {found}; "
            f"it needs {card.source}"
        )


def _argument(kind: str) -> str | None:
    """Return the name of what follows the colon; None: nothing does."""
    return KINDS[kind].argument if kind in KINDS else None


def _check_kind(kind: str) -> None:
    """Refuse an unknown scenario; say how each kind is written."""
    try:
        look_up(kind, {**KINDS, **SCENARIOS}, "scenario")
    except UnknownNameError as error:
        forms = forms_of_scenarios()
        raise UnknownNameError(f"{error}; a kind is written as one of {forms}") from None


def _check_rows(scenario: Scenario, data: Data) -> None:
    """Refuse a scenario that was made from other data."""
    for split, tasks in ((data.train, scenario.tasks), (data.test, scenario.test_tasks or ())):
        y = look_up(scenario.label, split.labels, "label column")
        last = max((int(rows.max()) for rows in tasks if len(rows)), default=-1)
        if last >= len(y) or int(y.max()) >= scenario.n_classes:
            raise DataError(
                f"{scenario} was made from other data: it has row {last}, and these have "
                f"{len(y)} rows and a class {int(y.max())}"
            )


def _checked(tasks: Any) -> int | tuple[int, ...]:
    """Return a number of tasks, or the classes of each."""
    if not isinstance(tasks, list | tuple):
        return whole(tasks, "tasks")
    if len(tasks) < 2:
        raise OptionError(
            f"tasks must list the classes of at least two tasks, got {list(tasks)}: one task of "
            "all classes is scenario iid"
        )
    return tuple(whole(n, "the classes of a task") for n in tasks)


def _numbers(text: str) -> int | tuple[int, ...]:
    """Read "5" as five tasks, "4,3,3" as the classes of each of three."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(
            f"tasks must be a number, or the classes of each task (4,3,3), got '{text}'"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers
