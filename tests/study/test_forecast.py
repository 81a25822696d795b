"""Forecasts: what is left is counted, and its work divided by the speed of just now."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_data import small_data
from small_replay import plan_of, small_root

from lastlayer.catalogue import WIDTH
from lastlayer.study.heads import forecast as of_heads
from lastlayer.study.heads.run import Run
from lastlayer.study.networks import forecast as of_networks
from lastlayer.study.prepare import prepare
from lastlayer.study.scenario_spec import ScenarioSpec

CPU = torch.device("cpu")
SPEC = ScenarioSpec.parse("incremental:3")


def test_heads_take_their_work_at_the_speed_of_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_heads, "_speed", lambda device: 100.0)
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
        return of_heads.cost(run, SimpleNamespace(**of_data), scenario)  # type: ignore[arg-type]

    answers = cost(test=range(20)) - cost()
    assert answers > 0
    assert cost(test=range(40)) == pytest.approx(cost() + 3 * answers)
    assert cost(in_features=16) == pytest.approx(2 * cost())
    n_classes, epochs = scenario.n_classes, of_heads.RULES.epochs
    scored = 10 * n_classes * 8 * scenario.n_tasks
    expected = {
        "linear": of_heads.SCORE * (epochs + 1) * scored,
        "mean": of_heads.PROTOTYPE * scored,
        "knn": (of_heads.NEIGHBOUR * 100 + of_heads.VOTE * scenario.n_tasks) * 10 * 8,
    }
    assert answers == pytest.approx(expected[head])


def test_a_head_behind_a_map_costs_as_much_more_as_the_map_is_wide() -> None:
    data = small_data()
    scenario = SPEC.build(data, order=0)
    slda, mapped = (
        of_heads.cost(Run("data", SPEC, head), data, scenario) for head in ("slda", "random_slda")
    )
    assert mapped / slda == pytest.approx(WIDTH / data.in_features, rel=0.05)


def test_networks_take_their_images_at_the_rate_of_their_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = prepare(plan_of(), tmp_path, small_root(tmp_path / "cifar", monkeypatch))
    monkeypatch.setattr(of_networks, "_rate", lambda run, n, device: 50.0)
    monkeypatch.setattr(of_networks.make, "n_images", lambda run, data: 200)
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
    monkeypatch.setattr(of_heads, "perf_counter", lambda: next(clock))
    assert of_heads._speed(torch.device("cpu")) == 20 * 512**3 / 4
