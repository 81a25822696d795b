"""Forecasts: what is left is counted, and its work divided by the speed of just now."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.catalogue.map_widths import WIDTH
from lastlayer.evaluate import costs
from lastlayer.replay.study import train_networks as of_networks
from lastlayer.scenarios.spec import ScenarioSpec
from lastlayer.study.prepare import prepare
from lastlayer.study.run import Run
from small_data import small_data
from small_replay import plan_of, small_root

of_heads = import_module("lastlayer.study.execute")  # its function has the same name
CPU = torch.device("cpu")
SPEC = ScenarioSpec.parse("incremental:3")


def test_heads_take_their_work_at_the_speed_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "measured_speed", lambda device: 100.0)
    monkeypatch.setattr(of_heads, "thread_count", lambda device: 4)
    monkeypatch.setattr(of_heads, "cost", lambda run, data, scenario: 800.0 + run.seed)
    runs = {f"{head} {seed}": Run("data", SPEC, head, seed=seed)
            for head in ("mean", "knn") for seed in (0, 400)}  # fmt: skip
    (row,) = of_heads.forecast_heads(runs, {"data": small_data()}, {"mean 0"}, CPU)
    assert (row.runs, row.left) == (4, 3)
    assert row.seconds == (1200 + 800 + 1200) / (4 * 100)


@pytest.mark.parametrize("head", ["linear", "mean", "knn"])
def test_a_run_costs_what_it_learns_and_what_it_answers(head: str) -> None:
    """Costs are sums of products of sizes: twice the test samples cost as much more each time."""
    data = small_data()
    scenario, run = SPEC.build(data, order=0), Run("data", SPEC, head)

    def cost(**sizes: Any) -> float:
        of_data = {"in_features": 8, "train": range(100), "test": range(10), **sizes}
        return of_heads.cost(run, SimpleNamespace(**of_data), scenario)

    answers = cost(test=range(20)) - cost()
    assert answers > 0
    assert cost(test=range(40)) == pytest.approx(cost() + 3 * answers)
    assert cost(in_features=16) == pytest.approx(2 * cost())
    n_classes, epochs = scenario.n_classes, of_heads.RULES.epochs
    once, n_tasks = 10 * n_classes * 8, scenario.n_tasks
    scored = costs.SCORE * (epochs * n_tasks + 1) + costs.TRACE * n_tasks
    expected = {
        "linear": scored * once,
        "mean": costs.PROTOTYPE * once * n_tasks,
        "knn": (costs.NEIGHBOUR * 100 + costs.VOTE * scenario.n_tasks) * 10 * 8,
    }
    assert answers == pytest.approx(expected[head])


def test_a_head_behind_a_map_learns_and_solves_what_is_as_wide_as_the_map() -> None:
    data = small_data()
    scenario, run = SPEC.build(data, order=0), Run("data", SPEC, "random_slda")
    learned = costs.WIDE * len(data.train) * WIDTH**2
    solved = 3 * HEADS["random_slda"].refresh(data.in_features, scenario.n_classes, len(data.train))
    assert of_heads.cost(run, data, scenario) == pytest.approx(learned + solved, rel=0.05)


@pytest.mark.parametrize(("head", "more"), [("random_slda", 0), ("mean", 89)])
def test_many_tasks_cost_no_more_answers_than_are_asked_for(head: str, more: int) -> None:
    data = small_data()
    stream, run = SPEC.build(data, order=0), Run("data", SPEC, head)
    found = [
        of_heads.cost(
            run, data, replace(stream, tasks=(torch.arange(9),) * n, order=tuple(range(n)))
        )
        for n in (9, 10, 99)
    ]
    assert found[2] - found[1] == pytest.approx(more * (found[1] - found[0]))


def test_a_run_without_a_stream_costs_nothing() -> None:
    runs = [Run("data", SPEC, "mean"), Run("data", ScenarioSpec.parse("mixed:day"), "mean"),
            Run("nowhere", SPEC, "mean")]  # fmt: skip
    found = of_heads.costs_of(runs, {"data": small_data()})
    assert [found[run] > 0 for run in runs] == [True, False, False]


def test_networks_take_their_images_at_the_rate_of_their_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = prepare(plan_of(), tmp_path, small_root(tmp_path / "cifar", monkeypatch))
    monkeypatch.setattr(of_networks, "_rate", lambda run, n, device: 50.0)
    monkeypatch.setattr(of_networks, "n_images", lambda run, data: 200)
    first = next(iter(ready.runs))
    rows = of_networks.forecast_networks(ready.runs, ready.data, {first}, CPU)
    assert sum(row.runs for row in rows) == len(ready.runs)
    assert sum(row.left for row in rows) == len(ready.runs) - 1
    assert [row.seconds for row in rows] == [4.0 * row.left for row in rows]


def test_a_rate_is_images_by_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = prepare(plan_of(), tmp_path, small_root(tmp_path / "cifar", monkeypatch))
    run = next(iter(ready.runs.values()))
    clock = iter((10.0, 14.0))
    monkeypatch.setattr(of_networks, "perf_counter", lambda: next(clock))
    images = of_networks.STEPS * run.rules.batch_size
    assert of_networks._rate(run, 3, CPU) == images / 4


def test_a_speed_is_products_by_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 14.0])
    monkeypatch.setattr(costs, "perf_counter", lambda: next(clock))
    assert costs.measured_speed(torch.device("cpu")) == 20 * 512**3 / 4
