"""Networks trained end to end in a study: what is kept of them, and that nothing is made twice."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.small_images import SmallNet
from torch.nn import functional

from killing import KILLS, run
from lastlayer.errors import PlanError
from lastlayer.layers import LAYERS
from lastlayer.replay.study.network_run import NetworkRun, read_image_data
from lastlayer.replay.study.train_networks import Stage, n_images, ranking_rows, result_of
from lastlayer.replay.training import Network, ReplayRules, train_replay
from lastlayer.replay.training.learner import Learner
from lastlayer.replay.training.train import TaskEnd
from lastlayer.results import Study, load_study
from lastlayer.results.store import FILE
from lastlayer.scenarios.spec import ScenarioSpec
from lastlayer.study.conduct import Callbacks, conduct
from lastlayer.study.plan_file import Plan
from lastlayer.study.prepare import prepare
from lastlayer.study.result import Outcome, Result
from small_data import small_data
from small_replay import BLOCK, plan_of, small_root


@pytest.fixture(name="root")
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return small_root(tmp_path / "cifar", monkeypatch)


def make(plan: Plan, folder: Path, root: Path) -> tuple[Study, list[Outcome]]:
    made: list[Outcome] = []
    ready = prepare(plan, Path("features"), root)
    conduct(
        ready, "text", folder, version="1", device="cpu", callbacks=Callbacks(on_kept=made.extend)
    )
    return load_study(folder), made


def test_every_network_is_kept_with_what_came_of_it(root: Path, tmp_path: Path) -> None:
    study, made = make(plan_of(), tmp_path / "out", root)
    assert study.runs.is_empty()  # of heads on frozen features there are none
    assert study.replay.filter(state="done").height == len(made) == 8
    data = read_image_data("cifar10", root)
    right = study.arrays("right_by_class")
    lost = 0
    for row in study.replay.iter_rows(named=True):
        rules = ReplayRules(3, 8, 5, "adam", 0.05)
        spec = ScenarioSpec("incremental", tasks=3)
        run = NetworkRun(
            "cifar10", spec, row["head"], row["mask"], row["balance"], row["seed"], rules
        )
        assert run.digest(data.fingerprint) == row["digest"]
        assert row["order"] == row["seed"]
        assert row["images"] == n_images(run, data)
        counts = right[row["digest"]]
        assert counts.shape == (1 + 3 * 3, 3)
        assert (counts[0] == -1).all()
        assert row["final"] == counts[-1].sum() / 12
        if row["lost"]:
            shares = [row[f"lost_share_{part}"] for part in ("weights", "interference", "drift")]
            assert sum(shares) == pytest.approx(1)
        lost += row["lost"]
    assert lost > 10
    assert study.data["cifar10 images"].names == {"class": ["class_0", "class_1", "class_2"]}
    (orders,) = {tuple(map(tuple, study.arrays("task_order").values()))}
    assert len(set(orders)) == 2  # the seed orders the tasks


def test_arrays_are_of_the_tasks_in_the_order_they_came(root: Path, tmp_path: Path) -> None:
    study, _ = make(plan_of("1", balance=1.0, heads=["linear"]), tmp_path / "out", root)
    (order,) = study.arrays("task_order").values()
    assert order.tolist() != [0, 1, 2]
    (drift,) = study.arrays("drift_angle").values()
    for place, task in enumerate(order):  # a task is a class here
        assert np.isnan(drift[:place, task]).all()
        assert drift[place, task] == 0
    (arrived,) = study.arrays("arrived").values()
    assert arrived.tolist() == [order.tolist().index(c) for c in range(3)]
    (images,) = study.arrays("images").values()
    sizes = read_image_data("cifar10", root).train.labels["class"].bincount().numpy()[order]
    expected = sizes * [1, 2, 3]  # with balance 1 every old class comes as often as the new one
    np.testing.assert_array_equal(images, expected[:, None].repeat(3, axis=1))
    (by_task,) = study.arrays("right_by_task").values()
    (by_class,) = study.arrays("right_by_class").values()
    np.testing.assert_array_equal(by_task, by_class)
    assert study.replay["forgetting"].item() is not None
    assert "weight" not in study.array_names()  # of seed 0 only
    weights = make(plan_of("0", heads=["linear"]), tmp_path / "zero", root)[0].arrays("weight")
    assert {weight.shape for weight in weights.values()} == {(3, 3, 5)}


@pytest.mark.parametrize("head", ["linear", "weight_norm", "original_weight_norm"])
def test_loss_and_drift_are_those_of_the_network_itself(root: Path, head: str) -> None:
    """Found again from its answers and features after each task, class by class."""
    spec, rules = ScenarioSpec("incremental", tasks=3), ReplayRules(3, 8, 5, "adam", 0.05)
    run = NetworkRun("cifar10", spec, head, balance=0.1, seed=1, rules=rules)
    stage = Stage(read_image_data("cifar10", root), spec, torch.device("cpu"))
    order, y = stage.order(run), stage.test_y
    assert order != (0, 1, 2)
    ends = list(
        train_replay(stage.pool, stage.tasks, [run.network], SmallNet, rules, orders=[order])
    )
    insight = result_of(run, ends, stage).insight
    right, z = np.array([answers(head, end) == y for end in ends]), [e.features for e in ends]
    for then, c in enumerate(order):  # a task is a class here
        for now in range(then, 3):
            lost = right[then] & ~right[now] & (y == c)
            assert insight["lost_parts"][now, c].sum() == pytest.approx(lost.sum())
            before, after = (z[task][y == c].double() for task in (then, now))
            moved = functional.cosine_similarity(before, after).clamp(-1, 1).acos().rad2deg()
            assert insight["drift_angle"][now, c] == pytest.approx(moved.mean().item(), abs=1e-3)
            vector = functional.normalize(ends[then].layer["weight"][c].double(), dim=0)
            if head == "original_weight_norm":  # a gain below 0 turns it round
                vector = vector * ends[then].layer["gamma"][c].sign()
            along = ((after - before) @ vector).mean() / before.norm(dim=1).mean()
            assert insight["drift_along"][now, c] == pytest.approx(along.item(), abs=1e-5)
    assert insight["lost_parts"].sum() > 0


def answers(head: str, end: TaskEnd) -> NDArray[np.int64]:
    layer = LAYERS[head](5, 3)
    layer.load_state_dict(dict(end.layer))
    with torch.no_grad():
        return layer(end.features).argmax(1).numpy()


def test_what_is_there_is_not_made_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = make(plan_of("0"), tmp_path / "out", root)
    assert not (tmp_path / "out" / "checkpoints").exists()
    larger, made = make(plan_of("0-1"), tmp_path / "out", root)
    assert {outcome.run.seed for outcome in made} == {1}
    kept = larger.replay.filter(seed=0)
    assert kept.equals(first.replay)
    monkeypatch.setattr(Learner, "step", lambda learner, rows: pytest.fail("trained again"))
    assert make(plan_of("0-1"), tmp_path / "out", root)[1] == []


def test_checkpoints_are_removed_and_nothing_else(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, kept = tmp_path / "out", shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda *paths, **options: None)
    make(plan_of("0"), out, root)  # ended before it could remove them
    left = list((out / "checkpoints").glob("*/*/task-*.safetensors"))
    assert len(left) == 4 * 3
    own = out / "checkpoints" / "my-own.pt"
    own.touch()
    other = left[0].parents[1] / str(Network(seed=9))  # of another plan with the same rules
    other.mkdir()
    monkeypatch.setattr(shutil, "rmtree", kept)
    make(plan_of("0"), out, root)
    assert not any(path.exists() for path in left)
    assert own.exists()
    assert other.exists()
    own.unlink()
    other.rmdir()
    make(plan_of("0"), out, root)
    assert not (out / "checkpoints").exists()


def test_checkpoints_of_another_method_are_not_gone_on_from(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *paths, **options: None)
    plan, out = plan_of("0", heads=["linear"], balance=1.0), tmp_path / "out"
    make(plan, out, root)
    steps: list[int] = []
    step = Learner.step
    monkeypatch.setattr(Learner, "step", lambda *args: steps.append(1) or step(*args))
    monkeypatch.setattr(NetworkRun, "method", 2)
    make(plan, out, root)
    assert len(steps) > 20


def test_heads_and_networks_in_one_plan(root: Path, tmp_path: Path) -> None:
    small_data().save(tmp_path / "small.safetensors")
    experiment = {
        "features": str(tmp_path / "small.safetensors"),
        "scenario": "incremental:3",
        "heads": ["mean"],
    }
    both = {"preset": "paper", "seeds": "0", "experiment": [experiment], "replay": [BLOCK]}
    study, made = make(Plan.model_validate(both), tmp_path / "out", root)
    assert study.done.height == 1
    assert study.replay.height == 4
    assert len(made) == 5


def test_divergence_is_kept_as_such(root: Path, tmp_path: Path) -> None:
    wild = plan_of("0", heads=["linear"], balance=1.0, optimizer="sgd", lr=1e38)
    study, (result,) = make(wild, tmp_path / "out", root)
    assert isinstance(result, Result)
    row = study.replay.row(0, named=True)
    assert row["diverged"] == 0
    assert row["final"] is row["lost"] is row["lost_share_drift"] is None
    assert row["images"] > 0


@pytest.mark.parametrize("layer", LAYERS)
def test_ranking_rows_rank_as_the_layer(layer: str) -> None:
    torch.manual_seed(0)
    module, z = LAYERS[layer](4, 5), torch.randn(50, 4)
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.randn_like(part))
        rows, bias = ranking_rows(layer, {n: p.detach() for n, p in module.parts().items()})
        expected = module(z).argmax(1).numpy()
    np.testing.assert_array_equal((z.numpy() @ rows.T + bias).argmax(1), expected)


def test_test_samples_belong_to_tasks_where_classes_do(root: Path) -> None:
    stage = Stage(
        read_image_data("cifar10", root), ScenarioSpec("incremental", tasks=3), torch.device("cpu")
    )
    assert stage.apart
    stage.classes[1] = np.array([0, 1])
    assert not stage.apart


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per_class": 50}, r"replay\[0\]: per_class must be at most .* got 50"),
        ({"scenario": "cifar10"}, r"replay\[0\]: scenario 'cifar10' has 10 classes"),
        ({"scenario": "iid", "dataset": "cifar100"}, r"replay\[0\]: there is no cifar-100"),
    ],
)
def test_what_does_not_fit_is_refused_first(
    root: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        prepare(plan_of(**changes), Path("features"), root)


def test_without_a_folder_of_images_it_says_what_to_give() -> None:
    with pytest.raises(PlanError, match=r"replay\[0\]: .* --root DIR .*www.cs.toronto.edu"):
        prepare(plan_of(), Path("features"))


def content(folder: Path) -> list[object]:
    """Give all rows and arrays by digest, whatever order they were written in."""
    with closing(sqlite3.connect(folder / FILE)) as file:
        runs = file.execute("SELECT digest, state, final, images, lost FROM run ORDER BY digest")
        arrays = file.execute(
            "SELECT digest, name, type, shape, content FROM array JOIN run ON run.id = run "
            "ORDER BY digest, name"
        )
        return [*runs, *arrays]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork")
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    assert int(run(Path(__file__).with_name("killed_replay.py"), tmp_path)) == KILLS // 5
    expected = content(tmp_path / "undisturbed")
    assert len(load_study(tmp_path / "undisturbed").replay.filter(state="done")) == 8
    for folder in sorted(tmp_path.glob("killed-*")):
        assert content(folder) == expected
        assert not (folder / "checkpoints").exists()
