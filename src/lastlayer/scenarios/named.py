"""The scenarios that have a name: made as their cards say, and checked against them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lastlayer import catalogue
from lastlayer.catalogue import SCENARIOS
from lastlayer.errors import DataError, UnknownNameError
from lastlayer.names import look_up
from lastlayer.scenarios.kinds import incremental, lifelong, mixed, nested
from lastlayer.scenarios.scenario import Data, Scenario, count_classes, learned

KINDS: Mapping[str, Callable[..., Scenario]] = {
    "incremental": incremental,
    "lifelong": lifelong,
    "mixed": mixed,
    "nested": nested,
}


def make_scenario(name: str, data: Data, order: int = 0) -> Scenario:
    """Make a scenario by its name; ``lastlayer.catalogue.SCENARIOS`` holds them all.

    >>> from lastlayer import load_features
    >>> scenario = make_scenario("cifar100_lifelong", load_features("cifar100"), order=2)
    >>> scenario.order, [len(rows) for rows in scenario.tasks]
    ((2, 4, 1, 3, 0), [10000, 10000, 10000, 10000, 10000])
    """
    _explain(name)
    card = look_up(name, SCENARIOS, "scenario")
    primary = learned(data, None)
    missing = [column for column in card.columns if column not in data.train.labels]
    if missing:
        raise DataError(
            f"scenario '{name}' needs the label columns {', '.join(card.columns)}, but the data "
            f"have {', '.join(data.train.labels)}; it needs {card.source}"
        )
    label = card.columns[-1] if card.columns else primary
    _expect(name, "classes", card.n_classes, count_classes(data, label))
    scenario = KINDS[card.kind](data, label=label, order=order, **card.options)
    _expect(name, "tasks", card.n_tasks, scenario.n_tasks)
    return replace(scenario, name=name)


def _explain(name: object) -> None:
    """Answer a kind such as "incremental:5" with the function that makes it."""
    kind = name.partition(":")[0] if isinstance(name, str) else ""
    if kind in catalogue.KINDS and kind not in SCENARIOS:
        given = {"tasks": "tasks=…", "by": "by=…", None: ""}[catalogue.KINDS[kind].argument]
        call = ", ".join(filter(None, ("data", given)))
        raise UnknownNameError(
            f"'{name}' is a kind of scenario, not the name of one: write "
            f"lastlayer.scenarios.{kind}({call})"
        )


def _expect(name: str, what: str, expected: int, found: int) -> None:
    if found != expected:
        raise DataError(
            f"scenario '{name}' has {expected} {what}, but the data have {found}; "
            f"it needs {SCENARIOS[name].source}"
        )
