"""Every named scenario is the one that the paper describes, and says what data it needs."""

import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch
from tests.scenarios.toy_labels import ToyData, cifar100_like, core50_like, toy

from lastlayer import load_features, scenarios
from lastlayer.catalogue.scenario_cards import (
    COLUMNS,
    KINDS,
    SCENARIOS,
    KindCard,
    forms_of_scenarios,
)
from lastlayer.cli import main
from lastlayer.errors import DataError, UnknownNameError
from lastlayer.extraction import BACKBONES, DATASETS
from lastlayer.scenarios import Scenario, kinds, make_scenario, task_order
from lastlayer.scenarios.scenario import Data

DATA: dict[str, Callable[[], ToyData]] = {
    "cifar10": lambda: toy({"y": [row % 10 for row in range(30)]}),
    "cifar100": cifar100_like,
    "core50": core50_like,
    "cub200": lambda: toy({"bird": range(200)}),
}

# scenario: tasks, classes, classes in each task
EXPECTED = {
    "cifar10": (5, 10, 2),
    "core50": (10, 50, 5),
    "cub200": (10, 200, 20),
    "core10_lifelong": (8, 10, 10),
    "cifar100_lifelong": (5, 20, 20),
    "core10_mix": (50, 10, 1),
    "cifar100_mix": (100, 20, 1),
    "cifar100": (10, 100, 10),
}


@pytest.fixture(params=SCENARIOS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_tasks_and_classes_are_those_described(name: str) -> None:
    data = DATA[SCENARIOS[name].features]()
    scenario = make_scenario(name, data)
    n_tasks, n_classes, per_task = EXPECTED[name]
    labels = data.train.labels[scenario.label]
    assert (scenario.name, scenario.n_tasks, scenario.n_classes) == (name, n_tasks, n_classes)
    assert {len(labels[rows].unique()) for rows in scenario.tasks} == {per_task}


@pytest.mark.parametrize("order", [0, 3])
def test_tasks_partition_the_training_rows(name: str, order: int) -> None:
    data = DATA[SCENARIOS[name].features]()
    scenario = make_scenario(name, data, order=order)
    rows = torch.cat(scenario.tasks).sort().values
    assert torch.equal(rows, torch.arange(len(data.train.labels[data.train.label])))
    assert all((task.diff() > 0).all() for task in scenario.tasks)
    assert sorted(scenario.order) == list(range(scenario.n_tasks))


def test_only_test_sessions_belong_to_no_task(name: str) -> None:
    data = DATA[SCENARIOS[name].features]()
    scenario = make_scenario(name, data)
    if name == "core10_lifelong":
        assert scenario.test_tasks is None
        return
    assert scenario.test_tasks is not None
    for task, test_task in zip(scenario.tasks, scenario.test_tasks, strict=True):
        labels, test_labels = data.train.labels, data.test.labels
        assert torch.equal(
            labels[scenario.label][task].unique(), test_labels[scenario.label][test_task].unique()
        )


def test_other_data_are_refused_and_the_right_ones_named(name: str) -> None:
    entry = SCENARIOS[name]
    with pytest.raises(DataError, match=entry.features) as caught:
        make_scenario(name, toy({"y": range(7)}))
    how = "load_features" if entry.bundled else f"lastlayer import {entry.features}.parquet"
    assert how in str(caught.value)


@pytest.mark.parametrize("name", ["core50", "cub200"])
def test_extraction_gives_the_label_columns_that_are_named(name: str) -> None:
    assert DATASETS[name].labels == COLUMNS[name]
    assert f"lastlayer extract {name} --root DIR --backbone resnet18" in SCENARIOS[name].source
    assert "resnet18" in BACKBONES


@pytest.mark.parametrize("name", ["core50", "cub200"])
def test_the_command_that_is_named_makes_what_is_needed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = core50_like() if name == "core50" else toy({"class": range(200)})
    parts = [("train", labels.train.labels), ("test", labels.test.labels)]
    tables = [{k: v.tolist() for k, v in columns.items()} for _, columns in parts]
    rows = [
        pl.DataFrame(table).with_columns(pl.lit(part).alias("split"), pl.lit(0.0).alias("z"))
        for (part, _), table in zip(parts, tables, strict=True)
    ]
    table = pl.concat(rows).with_columns(pl.concat_list("z"))
    table.write_parquet(f"{name}.parquet")
    monkeypatch.setattr(sys, "argv", SCENARIOS[name].source.rpartition("by: ")[2].split())
    with pytest.raises(SystemExit, match="0"):
        main()
    data = load_features(f"{name}.safetensors")
    for scenario, entry in SCENARIOS.items():
        if entry.features == name:
            assert make_scenario(scenario, data).n_tasks == EXPECTED[scenario][0]


def test_the_columns_that_are_missing_are_named() -> None:
    with pytest.raises(DataError, match=r"needs the label columns session, category, but .* fine"):
        make_scenario("core10_lifelong", cifar100_like())


def test_data_with_other_sessions_are_refused() -> None:
    data = core50_like()
    with pytest.raises(DataError, match="has 8 tasks, but the data have 3"):
        make_scenario("core10_lifelong", ToyData(data.test, data.train))


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'core10_mix'"):
        make_scenario("core10mix", cifar100_like())


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("incremental:2", [[0, 1], [2, 3]]),
        ("incremental:1,3/y", [[0], [1, 2, 3]]),
        ("mixed:session", [[0, 2], [1, 3]]),
        ("iid", [[0, 1, 2, 3]]),
    ],
)
def test_a_kind_is_made_from_how_it_is_written(text: str, rows: list[list[int]]) -> None:
    scenario = make_scenario(text, toy({"y": [0, 1, 2, 3], "session": [0, 1, 0, 1]}))
    assert [task.tolist() for task in scenario.tasks] == rows
    assert scenario.name == text.partition(":")[0]


def test_a_kind_takes_the_order() -> None:
    tasks = make_scenario("incremental:3", toy({"y": [0, 1, 2]}), order=1).tasks
    assert [int(rows) for rows in tasks] == list(task_order(3, seed=1))


def test_a_new_kind_is_a_card_and_the_function_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(data: Data, label: str | None = None, order: int = 0) -> Scenario:
        """Bring the rows in one task each, the last one first."""
        rows = torch.arange(len(data.train.labels["y"])).flip(0)
        tasks = rows.split(1)
        return Scenario("backwards", "y", 2, tasks, None, tuple(range(len(tasks))))

    card = KindCard("backwards", "the last row first", "mixed", None, "backwards")
    monkeypatch.setitem(KINDS, card.name, card)  # type: ignore[arg-type]
    monkeypatch.setattr(kinds, card.name, backwards, raising=False)
    scenario = make_scenario("backwards", toy({"y": [0, 1, 1]}))
    assert [rows.tolist() for rows in scenario.tasks] == [[2], [1], [0]]
    assert card.form in forms_of_scenarios()


def test_every_kind_has_a_function() -> None:
    for kind in KINDS:
        assert getattr(kinds, kind) is getattr(scenarios, kind)
