"""Networks trained as one grouped network: each as alone, whoever else there is."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lastlayer.errors import OptionError
from lastlayer.extraction.backbones.resnet20 import ResNet20
from lastlayer.layers import LAYERS, MASKS
from lastlayer.replay.training import Network, ReplayRules, TrainingOptions, train_replay
from lastlayer.replay.training.at_once import Grouped, SideBySide, trainer_for
from lastlayer.replay.training.image_pool import make_image_pool
from lastlayer.replay.training.learner import OPTIMIZERS, Learner, MakeBackbone
from lastlayer.replay.training.network_group import Group
from lastlayer.replay.training.train import TaskEnd
from small_images import SmallNet, pairs, small_pool

RULES = ReplayRules(epochs=3, per_class=5)
ALONE = TrainingOptions(clip=0.7, start="authors", grouped=False)
GROUPED = replace(ALONE, grouped=True)
CROWD = [  # every layer and mask, and epochs of four lengths
    Network(layer, mask, balance, seed)
    for seed, ((layer, mask), balance) in enumerate(
        zip(product(LAYERS, MASKS), [0.1, 1.0, 0.0, 0.5] * 4, strict=False)
    )
]


class Mixed(nn.Module):
    """Whatever has a grouped form: strides, groups, biases, pooling, a sum and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.second = nn.Conv2d(6, 4, 2, stride=2, groups=2)
        self.norm = nn.BatchNorm2d(4, momentum=0.3, affine=False)
        self.short = nn.Conv2d(6, 4, 1, stride=2, bias=False)
        self.out = nn.Sequential(nn.Linear(16, 7), nn.ReLU(), nn.Linear(7, 5, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = functional.relu(self.norm(self.second(x)) + self.short(x))
        out: Tensor = self.out(x.flatten(1))
        return out


def resnet() -> nn.Module:
    network = ResNet20(10)
    del network.fc
    return network


def assert_close(left: TaskEnd, right: TaskEnd) -> None:
    assert (left.network, left.task, left.images) == (right.network, right.task, right.images)
    assert left.right.equal(right.right)
    for one, other in [
        (left.features, right.features),
        *((left.layer[name], right.layer[name]) for name in right.layer),
    ]:
        assert float((one - other).norm()) <= 1e-9 * float(other.norm())


@pytest.mark.parametrize(
    ("backbone", "precision", "optimizer"),
    [  # on a CPU the precision says whether channels come first or last
        (SmallNet, "float32", "adam"),
        pytest.param(SmallNet, "tf32", "sgd", marks=pytest.mark.slow),
        pytest.param(Mixed, "float32", "sgd", marks=pytest.mark.slow),
        (Mixed, "tf32", "adam"),
    ],
)
def test_grouped_and_alone(backbone: MakeBackbone, precision: str, optimizer: str) -> None:
    pool = small_pool(dtype=torch.float64)
    tasks, rules = pairs(pool), replace(RULES, epochs=6, optimizer=optimizer)
    alone, grouped = (replace(options, precision=precision) for options in (ALONE, GROUPED))
    together = list(train_replay(pool, tasks, CROWD, backbone, rules, grouped))
    assert len({end.images for end in together if end.task == 1}) == 4
    found = {(end.network, end.task): end for end in together}
    for network in CROWD[::3]:
        steps = 0
        for end in train_replay(pool, tasks, [network], backbone, rules, alone):
            assert_close(found[network, end.task], end)
            steps += rules.epochs * (end.images // rules.batch_size)
        assert steps >= 36


def test_the_backbone_of_the_study() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (44, 3, 8, 8), dtype=torch.uint8, generator=draw)
    y = torch.arange(44) % 4
    pool = make_image_pool(x, y, x[:20], y[:20], mean=(0.5,), std=(0.25,), dtype=torch.float64)
    crowd = [Network("linear", "group", 1.0, 0), Network("weight_norm", "none", 0.2, 1)]
    rules = ReplayRules(epochs=2, per_class=5)
    grouped = list(train_replay(pool, pairs(pool), crowd, resnet, rules, GROUPED))
    alone = list(train_replay(pool, pairs(pool), crowd, resnet, rules, ALONE))
    for one, other in zip(grouped, alone, strict=True):
        assert_close(one, other)


def make_learners(networks: list[Network], options: TrainingOptions = GROUPED) -> list[Learner]:
    pool = small_pool(dtype=torch.float64)
    return [Learner(network, pool, SmallNet, "adam", 1e-3, options) for network in networks]


def everything(learner: Learner) -> list[Tensor]:
    states = learner.optimizer.state.values()
    kept = [value for state in states for value in state.values()]
    return [value.detach().clone() for value in [*learner.net.state_dict().values(), *kept]]


def test_a_network_without_a_batch_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a bit of it moves, while the others go on: weights, statistics, moments, steps."""
    long, short = make_learners([Network(seed=1), Network("weight_norm", "group", seed=0)])
    trainer = trainer_for([long, short], 8, 56, GROUPED)
    trainer.take_epoch([long, short], [torch.arange(56), torch.arange(16)])
    seen: list[tuple[int, list[Tensor]]] = []
    step = Group.step

    def watch(group: Group, n: int) -> None:
        step(group, n)
        group.stack.share_steps()
        seen.append((n, everything(short)))

    monkeypatch.setattr(Group, "step", watch)
    trainer.take_epoch([long, short], [torch.arange(56), torch.arange(16)])
    assert [n for n, _ in seen] == [2, 2, 1, 1, 1, 1, 1]
    assert any(not a.equal(b) for a, b in zip(seen[0][1], seen[1][1], strict=True))
    for _, later in seen[2:]:
        assert all(a.equal(b) for a, b in zip(seen[1][1], later, strict=True))
    steps = [state["step"] for state in short.optimizer.state.values()]
    assert {int(value) for value in steps} == {4}
    assert {int(state["step"]) for state in long.optimizer.state.values()} == {14}
    assert int(short.net[0].norm.num_batches_tracked) == 4


def test_who_else_is_in_a_group_changes_nothing_but_rounding() -> None:
    """Groups that change from epoch to epoch, with last smaller batches, and steps alone."""
    crowd = make_learners(CROWD[:4])
    alone = make_learners(CROWD[:4])
    orders = [torch.arange(n) for n in (29, 16, 41, 8)]
    grouped, turns = trainer_for(crowd, 8, 41, GROUPED), trainer_for(alone, 8, 41, ALONE)
    assert isinstance(grouped, Grouped)
    assert isinstance(turns, SideBySide)
    for chosen in ([0, 1, 2, 3], [3, 1], [2], [0, 2, 3], [1, 0, 3, 2]):
        for trainer, learners in ((grouped, crowd), (turns, alone)):
            trainer.take_epoch([learners[i] for i in chosen], [orders[i] for i in chosen])
    for one, other in zip(crowd, alone, strict=True):
        for a, b in zip(everything(one), everything(other), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize(
    "killed_at", [14, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 33))]
)
def test_killed_in_a_group_and_resumed_in_one_or_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int, second: bool, optimizer: str
) -> None:
    pool, rules = small_pool(dtype=torch.float64), replace(RULES, optimizer=optimizer)
    given = pool, pairs(pool), CROWD[:5], SmallNet, rules
    undisturbed = list(train_replay(*given, GROUPED))
    taken, step = [0], Group.step

    def fatal(group: Group, n: int) -> None:
        taken[0] += 1
        if taken[0] == killed_at:
            raise KilledError
        step(group, n)

    with monkeypatch.context() as patch:
        patch.setattr(Group, "step", fatal)
        with pytest.raises(KilledError):
            list(train_replay(*given, GROUPED, folder=tmp_path))
    resumed = list(train_replay(*given, replace(GROUPED, grouped=second), folder=tmp_path))
    for one, other in zip(resumed, undisturbed, strict=True):
        assert_close(one, other)


def test_a_network_saved_alone_goes_on_in_a_group(tmp_path: Path) -> None:
    """Some are a task ahead of the others, some an epoch, and one has not begun."""
    pool = small_pool(dtype=torch.float64)
    tasks, crowd = pairs(pool), CROWD[:4]
    undisturbed = list(train_replay(pool, tasks, crowd, SmallNet, RULES, GROUPED))
    for network, epochs in ((crowd[0], 4), (crowd[1], 1), (crowd[3], 3)):
        left = [epochs]

        def enough(left: list[int] = left) -> bool:
            left[0] -= 1
            return not left[0]

        list(
            train_replay(
                pool, tasks, [network], SmallNet, RULES, ALONE, folder=tmp_path, stop=enough
            )
        )
    resumed = list(train_replay(pool, tasks, crowd, SmallNet, RULES, GROUPED, folder=tmp_path))
    for one, other in zip(resumed, undisturbed, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("options", [ALONE, GROUPED], ids=["alone", "grouped"])
def test_stopped_between_checkpoints_and_carried_on(
    tmp_path: Path, options: TrainingOptions
) -> None:
    """A checkpoint every two epochs, and one where it is stopped: as if it never was."""
    pool = small_pool(dtype=torch.float64)
    given = pool, pairs(pool), CROWD[:4], SmallNet, RULES, replace(options, save_every=2)
    undisturbed, ends, calls = list(train_replay(*given)), [], 0
    while len(ends) < len(undisturbed):
        trained: list[int] = []
        ends = list(
            train_replay(*given, folder=tmp_path, on_epoch=trained.append, stop=lambda: True)
        )
        assert len(trained) == 4  # one epoch of each in a call, and none of them twice
        calls += 1
        if calls == 9:
            ends = list(train_replay(*given, folder=tmp_path))
    assert calls == 9
    for one, other in zip(ends, undisturbed, strict=True):
        assert_close(one, other)


def test_checkpoints_are_written_as_often_as_asked_for_and_when_a_task_is_done(
    tmp_path: Path,
) -> None:
    pool, network = small_pool(), Network()
    file = tmp_path / str(network) / "task-0.safetensors"
    there: list[bool] = []
    options, rules = TrainingOptions(save_every=2), replace(RULES, epochs=3)
    given = pool, pairs(pool)[:1], [network], SmallNet, rules, options
    for _ in train_replay(*given, folder=tmp_path, on_epoch=lambda n: there.append(file.exists())):
        pass
    assert there == [False, True, True]
    found: list[int] = []
    list(train_replay(*given, folder=tmp_path, on_found=found.append))
    assert len(found) == 3


class Concatenated(SmallNet):
    """Joins channels: of all networks, if they lie side by side."""

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.norm(self.conv(x))
        return torch.cat([maps, maps.relu()], dim=1).mean((2, 3))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 3, 1)
        self.other = nn.Conv2d(3, 3, 1)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.other(self.one(x))
        return maps.mean((2, 3))


def pooled(*parts: nn.Module) -> nn.Module:
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (Concatenated, "does not treat each channel by itself"),
        (lambda: pooled(nn.Conv2d(3, 4, 1), nn.Dropout()), "draws at random"),
        (lambda: pooled(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4)), r"without a grouped form, .*\.1:"),
        (lambda: pooled(nn.Conv2d(3, 4, 1), nn.Softmax(1)), "each channel by itself"),
        (lambda: pooled(nn.Conv2d(3, 4, 3, padding_mode="circular", padding=1)), "grouped form"),
        (Tied, "share their weights"),
    ],
)
def test_a_backbone_without_a_grouped_form(backbone: MakeBackbone, message: str) -> None:
    pool = small_pool()
    given = pool, pairs(pool)[:1], CROWD[:3], backbone, RULES
    with pytest.raises(OptionError, match=message):
        train_replay(*given, GROUPED)
    assert len(list(train_replay(*given, replace(GROUPED, grouped=None)))) == 3  # side by side


def test_frozen_and_unused_weights_stay_as_they_are() -> None:
    class Frozen(SmallNet):
        def __init__(self) -> None:
            super().__init__()
            self.conv.weight.requires_grad_(False)
            self.unused = nn.Linear(5, 5)

    pool = small_pool(dtype=torch.float64)
    made = [Learner(network, pool, Frozen, "adam", 1e-3, GROUPED) for network in CROWD[:2]]
    alone = [Learner(network, pool, Frozen, "adam", 1e-3, ALONE) for network in CROWD[:2]]
    before = [copy_of(learner) for learner in made]
    orders = [torch.arange(36), torch.arange(20)]  # with last batches that are taken alone
    grouped, turns = trainer_for(made, 8, 36, GROUPED), trainer_for(alone, 8, 36, ALONE)
    for _ in range(3):
        grouped.take_epoch(made, orders)
        turns.take_epoch(alone, orders)
    for learner, other, old in zip(made, alone, before, strict=True):
        new = learner.net.state_dict()
        same = {name for name, value in old.items() if value.equal(new[name])}
        assert same == {f"backbone.{n}" for n in ("conv.weight", "unused.weight", "unused.bias")}
        torch.testing.assert_close(new, other.net.state_dict(), rtol=1e-9, atol=1e-12)


def copy_of(learner: Learner) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in learner.net.state_dict().items()}


def test_bfloat16_trains_near_float32_and_is_tested_in_the_pools_type() -> None:
    pool = small_pool()
    rules = ReplayRules(epochs=6, per_class=5, lr=0.01)
    ends = {}
    for precision, grouped in product(("float32", "bfloat16"), (True, False)):
        options = TrainingOptions(10.0, "authors", precision, grouped)
        ends[precision, grouped] = next(
            train_replay(pool, pairs(pool), CROWD[:2], SmallNet, rules, options)
        )
    exact = ends["float32", False].layer["weight"]
    for grouped in (True, False):
        end = ends["bfloat16", grouped]
        assert end.features.dtype == end.layer["weight"].dtype == torch.float32
        gap = float((end.layer["weight"] - exact).norm() / exact.norm())
        assert 1e-6 < gap < 0.1


def test_networks_that_diverge_leave_the_others_alone() -> None:
    pool = small_pool(dtype=torch.float64)
    made = [Learner(network, pool, SmallNet, "adam", 1e-3, GROUPED) for network in CROWD[:3]]
    alone = [Learner(network, pool, SmallNet, "adam", 1e-3, ALONE) for network in CROWD[:3]]
    made[1].layer.weight.data.fill_(float("nan"))
    order = [torch.arange(40)] * 3
    trainer_for(made, 8, 40, GROUPED).take_epoch(made, order)
    trainer_for(alone, 8, 40, ALONE).take_epoch(alone, order)
    assert made[1].right().tolist() == [-1] * 6
    for number in (0, 2):
        for a, b in zip(everything(made[number]), everything(alone[number]), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_recorded_steps_of_a_group_are_plain_steps(precision: str) -> None:
    pool = small_pool(dtype=torch.float64)
    alone, grouped = (replace(options, precision=precision) for options in (ALONE, GROUPED))
    given = pairs(pool), CROWD, SmallNet, RULES
    here = list(train_replay(pool, *given, alone))
    there = list(train_replay(pool.to(torch.device("cuda")), *given, grouped))
    for one, other in zip(there, here, strict=True):
        torch.testing.assert_close(one.features, other.features, rtol=0, atol=1e-6)
        torch.testing.assert_close(dict(one.layer), dict(other.layer), rtol=0, atol=1e-6)
