"""Each kind of drift gives every task its rows, checked row by row against a plain loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.scenarios.toy_labels import ToyData, cifar100_like, core50_like, toy

from lastlayer.errors import DataError, LabelError, OptionError, UnknownNameError
from lastlayer.scenarios import Scenario, incremental, lifelong, mixed, nested

seeds = st.integers(0, 7)


def all_rows(scenario: Scenario) -> list[int]:
    return sorted(torch.cat(scenario.tasks).tolist())


@st.composite
def labelled(draw: st.DrawFn) -> tuple[ToyData, int]:
    """Data in which each class occurs at least once, and a number of tasks that divides them."""
    n_tasks, per_task = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    classes = range(n_tasks * per_task)
    more = draw(st.lists(st.sampled_from(classes), max_size=30))
    return toy({"y": draw(st.permutations([*classes, *more]))}), n_tasks


@given(labelled(), seeds)
def test_incremental_partitions_rows_by_class(case: tuple[ToyData, int], order: int) -> None:
    data, n_tasks = case
    y = data.train.labels["y"].tolist()
    scenario = incremental(data, tasks=n_tasks, order=order)
    per_task = scenario.n_classes // n_tasks
    assert all_rows(scenario) == list(range(len(y)))
    for number, rows in zip(scenario.order, scenario.tasks, strict=True):
        own = range(number * per_task, (number + 1) * per_task)
        assert rows.tolist() == [row for row, label in enumerate(y) if label in own]


@given(labelled(), seeds)
def test_an_order_only_permutes_tasks(case: tuple[ToyData, int], order: int) -> None:
    data, n_tasks = case
    plain = incremental(data, tasks=n_tasks)
    moved = incremental(data, tasks=n_tasks, order=order)
    assert plain.test_tasks is not None
    assert moved.test_tasks is not None
    assert sorted(moved.order) == list(plain.order)
    for place, number in enumerate(moved.order):
        assert torch.equal(moved.tasks[place], plain.tasks[number])
        assert torch.equal(moved.test_tasks[place], plain.test_tasks[number])


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=40), seeds)
def test_mixed_takes_one_value_per_task(rows: list[tuple[int, int]], order: int) -> None:
    by = [value for value, _ in rows]
    data = toy({"y": [label for _, label in rows], "by": by})
    scenario = mixed(data, by="by", order=order)
    values = sorted(set(by))
    assert all_rows(scenario) == list(range(len(by)))
    for number, task in zip(scenario.order, scenario.tasks, strict=True):
        assert task.tolist() == [row for row, value in enumerate(by) if value == values[number]]


def test_tasks_may_have_different_numbers_of_classes() -> None:
    scenario = incremental(toy({"y": [3, 0, 1, 2, 0]}), tasks=[1, 3])
    assert [rows.tolist() for rows in scenario.tasks] == [[1, 4], [0, 2, 3]]


def test_the_label_is_the_primary_one_unless_named() -> None:
    data = toy({"y": [0, 1], "other": [0, 0]})
    assert incremental(data, tasks=2).label == "y"
    assert mixed(data, by="y", label="other").label == "other"


def test_lifelong_has_every_class_in_every_task() -> None:
    data = core50_like()
    scenario = lifelong(data, by="session", label="category")
    assert (scenario.n_tasks, scenario.n_classes) == (8, 10)
    for rows in scenario.tasks:
        assert data.train.labels["category"][rows].unique().tolist() == list(range(10))
        assert len(data.train.labels["session"][rows].unique()) == 1


def test_nested_takes_the_next_inner_class_of_each_outer_one() -> None:
    data = cifar100_like()
    fine, coarse = (data.train.labels[name].tolist() for name in ("fine", "coarse"))
    inner = {c: sorted({f for f, of in zip(fine, coarse, strict=True) if of == c}) for c in coarse}
    scenario = nested(data, by="fine", label="coarse")
    for number, rows in enumerate(scenario.tasks):
        own = [classes[number] for classes in inner.values()]
        assert rows.tolist() == [row for row, f in enumerate(fine) if f in own]


def test_test_rows_follow_the_rule_of_the_training_rows() -> None:
    data = toy({"y": [0, 1, 2, 3]}, {"y": [3, 1, 0, 2, 3]})
    scenario = incremental(data, tasks=2, order=1)
    assert scenario.order == (0, 1)
    assert scenario.test_tasks is not None
    assert [rows.tolist() for rows in scenario.test_tasks] == [[1, 2], [0, 3, 4]]


@pytest.mark.parametrize("test", [{"y": [0, 1], "session": [2, 2]}, {"y": [0, 1]}])
def test_test_rows_of_other_sessions_belong_to_no_task(test: dict[str, list[int]]) -> None:
    data = toy({"y": [0, 1, 0, 1], "session": [0, 0, 1, 1]}, test)
    assert lifelong(data).test_tasks is None


@pytest.mark.parametrize("tasks", [0, -1, 3, 20, [], [5, 4], [11, -1]])
def test_tasks_that_do_not_fit_the_classes_are_refused(tasks: int | list[int]) -> None:
    with pytest.raises(OptionError, match="10"):
        incremental(toy({"y": range(10)}), tasks=tasks)


def test_a_task_without_rows_is_refused() -> None:
    data = toy({"y": [0, 1, 4]}, {"y": [5]})
    with pytest.raises(DataError, match="task 1 has none"):
        incremental(data, tasks=3)


def test_unknown_columns_are_refused() -> None:
    data = toy({"y": [0, 1], "session": [0, 1]})
    with pytest.raises(UnknownNameError, match="did you mean 'session'"):
        mixed(data, by="sesion")
    with pytest.raises(UnknownNameError, match="label column 'x'"):
        incremental(data, tasks=1, label="x")
    with pytest.raises(UnknownNameError, match="label column 'y'"):
        incremental(toy({"y": [0, 1]}, {"x": [0]}), tasks=1)


@pytest.mark.parametrize("labels", [torch.tensor([0.0, 1.0]), torch.tensor([-1, 0])])
def test_labels_that_are_no_classes_are_refused(labels: torch.Tensor) -> None:
    data = toy({"y": [0, 1]})
    with pytest.raises(LabelError, match=r"whole numbers \(int64\) of at least 0"):
        incremental(ToyData(type(data.train)({"y": labels}, "y"), data.test), tasks=1)


def test_other_kinds_are_named_where_the_data_do_not_fit() -> None:
    data = toy({"y": [0, 1, 0], "session": [0, 0, 1]})
    with pytest.raises(DataError, match="task 1 has 1; use mixed:session"):
        lifelong(data)
    with pytest.raises(OptionError, match="incremental"):
        mixed(data, by="y")
    with pytest.raises(DataError, match="must belong to one class of 'y'"):
        nested(data, by="session")
    with pytest.raises(DataError, match="task 1 has 1"):
        nested(toy({"y": [0, 0, 1], "fine": [0, 1, 2]}), by="fine")


@given(seeds)
def test_equal_arguments_give_equal_scenarios(order: int) -> None:
    first, second = (nested(cifar100_like(), "fine", "coarse", order) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.tasks, second.tasks, strict=True))
