"""A network in a replay run: as plain PyTorch trains it, as if alone, as if never killed."""

from itertools import product
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from lastlayer.layers import LAYERS, MASKS, masked_cross_entropy
from lastlayer.replay.training import ReplayRules, train_replay
from lastlayer.replay.training.learner import OPTIMIZERS, Learner, Network
from lastlayer.replay.training.replay_stream import START, ReplayStream, generator_for
from lastlayer.replay.training.train import TaskEnd
from small_images import SmallNet, pairs, small_pool

CLOSE = {"rtol": 1e-9, "atol": 1e-9}  # in float64: float32 drifts, on each CPU in its own way
RULES = ReplayRules(epochs=2, per_class=5)
MANY = [
    Network(layer, mask, balance, seed)
    for layer, mask, balance, seed in [
        ("linear", "none", 1.0, 0),
        ("weight_norm", "group", 1.0, 0),
        ("cosine", "single", 0.5, 1),
        ("original_weight_norm", "none", 0.1, 2),
        ("linear_no_bias", "group", 0.0, 1),
    ]
]


def assert_same(left: TaskEnd, right: TaskEnd) -> None:
    assert (left.network, left.task, left.images) == (right.network, right.task, right.images)
    assert left.right.equal(right.right)
    assert left.features.equal(right.features)
    assert left.layer.keys() == right.layer.keys()
    assert all(left.layer[name].equal(right.layer[name]) for name in left.layer)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", MANY[:3], ids=str)
def test_training_is_the_plain_loop_of_pytorch(network: Network, optimizer: str) -> None:
    pool = small_pool(dtype=torch.float64)
    tasks, rules = pairs(pool), ReplayRules(epochs=2, per_class=5, optimizer=optimizer)
    ends = list(train_replay(pool, tasks, [network], SmallNet, rules))
    torch.manual_seed(generator_for(START, network.seed).initial_seed())
    backbone = SmallNet()
    layer = LAYERS[network.layer](5, pool.n_classes)
    backbone.double(), layer.double()
    parameters = [*backbone.parameters(), *layer.parameters()]
    stream = ReplayStream(tasks, pool.y, 5, network.balance, network.seed)
    for task in range(len(tasks)):
        learn = (  # a new one for each task
            torch.optim.Adam(parameters, lr=1e-3)
            if optimizer == "adam"
            else torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
        )
        for epoch in range(2):
            for rows in stream.order(task, epoch).split(8):
                if len(rows) == 1:
                    continue
                x = (pool.x[rows].double() / 255 - 0.5) / 0.25
                learn.zero_grad()
                masked_cross_entropy(layer(backbone(x)), pool.y[rows], network.mask).backward()
                learn.step()
        torch.testing.assert_close(dict(ends[task].layer), dict(layer.parts()), **CLOSE)
        backbone.eval()
        with torch.no_grad():
            z = backbone((pool.test_x.double() / 255 - 0.5) / 0.25)
            hits = pool.test_y[layer(z).argmax(1) == pool.test_y]
        backbone.train()
        torch.testing.assert_close(ends[task].features, z, **CLOSE)
        assert ends[task].right[-1].tolist() == torch.bincount(hits, minlength=6).tolist()
        assert ends[task].images == len(stream.rows[task])


def test_a_last_batch_of_one_image_is_left_out() -> None:
    """Batch norm cannot learn from one; 17 images in batches of 8 are two steps, as 16 are."""
    pool = small_pool((9, 8))
    rules, steps = ReplayRules(epochs=3, per_class=5), []
    step = Learner.step

    def count(learner: Learner, rows: torch.Tensor) -> None:
        steps.append(len(rows))
        step(learner, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "step", count)
        (end,) = train_replay(pool, pairs(pool), MANY[:1], SmallNet, rules)
    assert end.images == 17
    assert steps == [8, 8] * 3


def test_what_is_trained_and_what_checkpoints_hold_is_told_apart(tmp_path: Path) -> None:
    pool = small_pool()
    told: list[tuple[list[int], list[int]]] = [([], []), ([], [])]
    for trained, found in told:
        told_to = {"on_epoch": trained.append, "on_found": found.append}
        list(train_replay(pool, pairs(pool), MANY, SmallNet, RULES, folder=tmp_path, **told_to))
    (trained, none), (nothing, found) = told
    assert none == nothing == []
    assert len(trained) == len(MANY) * 3 * 2
    assert sorted(trained) == sorted(found)


def test_one_network_alone_and_among_others() -> None:
    """Over 20 steps in float64, to 1e-9; on a CPU the numbers are even the same to the bit."""
    pool = small_pool(dtype=torch.float64)
    tasks = pairs(pool)[:2]
    rules = ReplayRules(epochs=4, per_class=5)
    kinds = enumerate(product(LAYERS, MASKS))
    crowd = [Network(layer, mask, 1.0, seed) for seed, (layer, mask) in kinds]
    among = {
        (end.network, end.task): end for end in train_replay(pool, tasks, crowd, SmallNet, rules)
    }
    for network in crowd[::4]:
        steps = 0
        for alone in train_replay(pool, tasks, [network], SmallNet, rules):
            steps += rules.epochs * -(-alone.images // rules.batch_size)
            other = among[network, alone.task]
            assert alone.features.dtype == torch.float64
            torch.testing.assert_close(other.features, alone.features, **CLOSE)
            torch.testing.assert_close(dict(other.layer), dict(alone.layer), **CLOSE)
            assert_same(other, alone)
        assert steps >= 20


class KilledError(Exception):
    pass


def kill_after(images: list[int], n: int) -> None:
    images.append(0)
    if len(images) == n:
        raise KilledError


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_killed_between_epochs_of_a_task_and_resumed(tmp_path: Path, optimizer: str) -> None:
    pool, rules = small_pool(), ReplayRules(epochs=3, per_class=5, optimizer=optimizer)
    tasks = pairs(pool)
    undisturbed = list(train_replay(pool, tasks, MANY, SmallNet, rules))
    calls: list[int] = []
    run = train_replay(
        pool,
        tasks,
        MANY,
        SmallNet,
        rules,
        folder=tmp_path,
        on_epoch=lambda n: kill_after(calls, 21),
    )
    with pytest.raises(KilledError):
        list(run)
    assert (tmp_path / str(MANY[0]) / "task-1.safetensors").exists()
    resumed = list(train_replay(pool, tasks, MANY, SmallNet, rules, folder=tmp_path))
    for one, other in zip(undisturbed, resumed, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("n", [40, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 13, 71))])
def test_killed_in_the_middle_of_an_epoch_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """Step n of all networks together raises: some have taken it and some have not."""
    pool = small_pool()
    tasks = pairs(pool)
    undisturbed = list(train_replay(pool, tasks, MANY, SmallNet, RULES))
    taken, step = [0], Learner.step

    def fatal(learner: Learner, rows: torch.Tensor) -> None:
        taken[0] += 1
        if taken[0] == n:
            raise KilledError
        step(learner, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", fatal)
        killed = train_replay(pool, tasks, MANY, SmallNet, RULES, folder=tmp_path)
        with pytest.raises(KilledError):
            list(killed)
    resumed = list(train_replay(pool, tasks, MANY, SmallNet, RULES, folder=tmp_path))
    for one, other in zip(undisturbed, resumed, strict=True):
        assert_same(one, other)


def test_a_run_that_is_done_gives_its_ends_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = small_pool()
    tasks = pairs(pool)
    done = list(train_replay(pool, tasks, MANY, SmallNet, RULES, folder=tmp_path))
    monkeypatch.setattr(Learner, "step", lambda learner, rows: pytest.fail("trained again"))
    for one, other in zip(
        done, train_replay(pool, tasks, MANY, SmallNet, RULES, folder=tmp_path), strict=True
    ):
        assert_same(one, other)


def test_each_network_may_meet_the_tasks_in_an_order_of_its_own() -> None:
    pool = small_pool()
    tasks, orders = pairs(pool), [(2, 0, 1), (0, 1, 2)]
    ends = list(train_replay(pool, tasks, MANY[:2], SmallNet, RULES, orders=orders))
    for network, order in zip(MANY[:2], orders, strict=True):
        own = [tasks[task] for task in order]
        among = [end for end in ends if end.network == network]
        for one, other in zip(
            among, train_replay(pool, own, [network], SmallNet, RULES), strict=True
        ):
            assert_same(one, other)


def test_training_leaves_the_callers_random_numbers_and_images_alone() -> None:
    pool = small_pool()
    before, images = torch.random.get_rng_state(), pool.x.clone()
    list(train_replay(pool, pairs(pool)[:1], MANY[:1], SmallNet, RULES))
    assert torch.random.get_rng_state().equal(before)
    assert pool.x.equal(images)


def test_layers_and_masks_of_a_seed_start_from_one_backbone() -> None:
    pool = small_pool()
    starts = [
        Learner(Network(layer, mask, seed=seed), pool, SmallNet, "adam", 1e-3).net[0].state_dict()
        for layer, mask, seed in [
            ("linear", "none", 3),
            ("cosine", "group", 3),
            ("linear", "none", 4),
        ]
    ]
    assert starts[0]["conv.weight"].equal(starts[1]["conv.weight"])
    assert not starts[0]["conv.weight"].equal(starts[2]["conv.weight"])


def test_tasks_are_learned_and_divergence_is_marked() -> None:
    pool = small_pool()
    rules = ReplayRules(epochs=12, per_class=9, lr=0.02)
    first = next(train_replay(pool, pairs(pool), [Network(seed=1)], SmallNet, rules))
    assert int(first.right[-1, :2].sum()) >= 18  # of 22 test images
    assert int(first.right[-1, 2:].sum()) == 0
    wild = ReplayRules(epochs=2, per_class=9, optimizer="sgd", lr=1e38)
    assert next(train_replay(pool, pairs(pool), [Network()], SmallNet, wild)).right[-1, 0] == -1


@pytest.mark.parametrize("mask", MASKS)
def test_the_loss_of_a_step_is_the_masked_cross_entropy(mask: str) -> None:
    logits, y = (
        torch.randn(7, 4, generator=generator_for(0, 0)),
        torch.tensor([0, 1, 1, 3, 0, 1, 3]),
    )
    keep = MASKS[mask](functional.one_hot(y, 4).mT).mT
    assert functional.cross_entropy(logits * keep, y).equal(masked_cross_entropy(logits, y, mask))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_steps_are_plain_steps() -> None:
    pool = small_pool(dtype=torch.float64)
    here = {(e.network, e.task): e for e in train_replay(pool, pairs(pool), MANY, SmallNet, RULES)}
    on_gpu = pool.to(torch.device("cuda"))
    for end in train_replay(on_gpu, pairs(pool), MANY, SmallNet, RULES):
        other = here[end.network, end.task]
        torch.testing.assert_close(end.features, other.features, rtol=0, atol=1e-6)
        torch.testing.assert_close(dict(end.layer), dict(other.layer), rtol=0, atol=1e-6)
