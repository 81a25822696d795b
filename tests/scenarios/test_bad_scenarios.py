"""Scenarios refuse in one line what is no data, no order, or no number of tasks."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.scenarios.toy_labels import toy

from lastlayer import scenarios
from lastlayer.errors import ArgumentError, LabelError, LastLayerError, OptionError
from lastlayer.scenarios import Scenario
from lastlayer.scenarios.scenario import column

DATA = toy({"y": [0, 1, 2, 3]})


@pytest.mark.parametrize("data", [None, 3, "cifar10", [], SimpleNamespace(train=1, test=2)])
@pytest.mark.parametrize("kind", ["incremental", "lifelong", "mixed", "nested", "iid", "subset"])
def test_data_that_are_none(kind: str, data: Any) -> None:
    needed = {"mixed": ("by",), "nested": ("by",), "subset": (3,)}
    with pytest.raises(ArgumentError, match="data must be Features, or have train and test"):
        getattr(scenarios, kind)(data, *needed.get(kind, ()))
    with pytest.raises(ArgumentError, match="data must be Features"):
        scenarios.make_scenario("cifar10", data)


@pytest.mark.parametrize("tasks", [2.0, "2", None, [2.0, 2], {2}, True, "22"])
def test_tasks_that_are_no_numbers(tasks: Any) -> None:
    with pytest.raises(ArgumentError, match="must be an integer"):
        scenarios.incremental(DATA, tasks=tasks)


def test_numbers_of_numpy_are_numbers() -> None:
    assert scenarios.incremental(DATA, tasks=np.int64(2), order=np.int64(1)).n_tasks == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [1.0, "1", None, True])
def test_an_order_is_a_number(order: Any) -> None:
    with pytest.raises(ArgumentError, match="an order must be an integer"):
        scenarios.incremental(DATA, tasks=2, order=order)


def test_sizes_that_would_fill_the_memory() -> None:
    with pytest.raises(OptionError, match="a subset size must be from 1 to 100000000, got"):
        scenarios.subset(DATA, size=10**12)
    with pytest.raises(OptionError, match="a number of tasks must be from 1 to 1000000, got"):
        scenarios.task_order(10**12, seed=1)
    with pytest.raises(LabelError, match="must be below 10000000"):
        scenarios.incremental(toy({"y": [0, 10**12]}), tasks=2)


@pytest.mark.parametrize(
    "labels",
    [torch.tensor([0, 1]).to_sparse(), torch.zeros(2, device="meta").long(), [0, 1],
     torch.zeros(2, 2).long(), torch.zeros(2)],
)  # fmt: skip
def test_labels_that_are_none(labels: Any) -> None:
    split = SimpleNamespace(labels={"y": labels}, label="y")
    data = SimpleNamespace(train=split, test=split)
    with pytest.raises(LastLayerError):
        scenarios.iid(data)


@pytest.mark.parametrize("scenario", [None, 3, "cifar10", [1, 2], SimpleNamespace(dataset=(1,))])
def test_what_is_no_scenario_of_continuum(scenario: Any) -> None:
    with pytest.raises(ArgumentError, match="must be scenarios of Continuum"):
        scenarios.from_continuum(scenario, scenario)


@pytest.mark.parametrize(
    "changes",
    [{"tasks": [torch.arange(2)]}, {"tasks": (None,)}, {"tasks": (torch.ones(2),)},
     {"order": (0, 1)}, {"order": 0}, {"test_tasks": torch.arange(2)}],
)  # fmt: skip
def test_scenarios_put_together_by_hand(changes: dict[str, Any]) -> None:
    right = {"name": "a", "label": "y", "n_classes": 2, "tasks": (torch.arange(2),)}
    right |= {"test_tasks": None, "order": (0,)}
    Scenario(**right)  # type: ignore[arg-type]
    with pytest.raises(LastLayerError, match="must"):
        Scenario(**(right | changes))


def test_a_label_column_may_hold_values_below_ten_million() -> None:
    def read(value: int) -> torch.Tensor:
        return column(SimpleNamespace(labels={"y": torch.tensor([value])}), "y")

    assert read(9_999_999).item() == 9_999_999
    with pytest.raises(LabelError, match="must be below 10000000"):
        read(10_000_000)


def test_a_subset_is_drawn_with_seed_0_unless_told() -> None:
    split = SimpleNamespace(labels={"y": torch.arange(20)}, label="y")
    data = SimpleNamespace(train=split, test=split)
    untold = scenarios.subset(data, 5).tasks[0]
    assert untold.equal(scenarios.subset(data, 5, seed=0).tasks[0])
    assert not untold.equal(scenarios.subset(data, 5, seed=1).tasks[0])


def test_where_test_rows_have_no_task_there_are_no_test_tasks() -> None:
    y = torch.tensor([0, 1, 0, 1])
    train = SimpleNamespace(
        labels={"y": y, "session": torch.zeros(4, dtype=torch.int64)}, label="y"
    )
    test = SimpleNamespace(labels={"y": y}, label="y")
    scenario = scenarios.lifelong(SimpleNamespace(train=train, test=test), by="session")
    assert (scenario.n_tasks, scenario.test_tasks) == (1, None)
