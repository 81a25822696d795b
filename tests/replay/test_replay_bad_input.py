"""What replay refuses, and how it says so."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from lastlayer.errors import DataError, LabelError, OptionError, ShapeError, UnknownNameError
from lastlayer.replay.training import ReplayRules, train_replay
from lastlayer.replay.training.image_pool import make_image_pool
from lastlayer.replay.training.learner import Network
from small_images import SmallNet, pairs, small_pool

RULES = ReplayRules(epochs=1, per_class=5)


def test_a_memory_larger_than_a_class() -> None:
    pool = small_pool()
    with pytest.raises(OptionError, match="got 10, but class 5 has 9 samples in task 2"):
        train_replay(pool, pairs(pool), [Network()], SmallNet, ReplayRules(per_class=10))


@pytest.mark.parametrize("balance", [-0.1, float("nan"), float("inf")])
def test_a_balance_that_is_none(balance: float) -> None:
    with pytest.raises(OptionError, match=f"balance must be at least 0 and finite, got {balance}"):
        Network(balance=balance)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (
            [[0, 1, 2], [0, 1]],
            r"must have a class that no earlier task had, got only \[0, 1\]",
        ),
        ([], "at least one task, got none"),
        ([[0, 1], []], "task 1 must have at least one row, got none"),
    ],
)
def test_a_task_without_new_classes(tasks: list[list[int]], message: str) -> None:
    pool = small_pool()
    rows = [torch.isin(pool.y, torch.tensor(t, dtype=torch.int64)).nonzero()[:, 0] for t in tasks]
    with pytest.raises(DataError, match=message):
        train_replay(pool, rows, [Network()], SmallNet, RULES)


def test_rows_that_are_not_there() -> None:
    pool = small_pool()
    with pytest.raises(DataError, match="the rows of task 0 must be from 0 to 66, got 0 to 67"):
        train_replay(pool, [torch.arange(68)], [Network()], SmallNet, RULES)
    with pytest.raises(ShapeError, match=r"must be \(n,\) int64"):
        train_replay(pool, [torch.ones(67, dtype=torch.bool)], [Network()], SmallNet, RULES)


def test_images_of_mixed_sizes() -> None:
    small, large, y = torch.zeros(3, 4, 4), torch.zeros(3, 8, 8), torch.tensor([0, 1])
    with pytest.raises(ShapeError, match=r"must have one size, got \[\(3, 4, 4\), \(3, 8, 8\)\]"):
        make_image_pool([small, large], y, [small, small], y)
    with pytest.raises(ShapeError, match="training and test images must have one size and type"):
        make_image_pool([small, small], y, [large, large], y)
    with pytest.raises(ShapeError, match="images must have one size, got none"):
        make_image_pool([], y, [small], y)
    assert make_image_pool([small, small], y, [small, small], y).x.shape == (2, 3, 4, 4)


def test_images_and_labels_that_do_not_fit() -> None:
    x, y = torch.zeros(2, 3, 4, 4), torch.tensor([0, 1])
    with pytest.raises(ShapeError, match=r"training labels must be \(2,\)"):
        make_image_pool(x, y[:1], x, y)
    with pytest.raises(LabelError, match="training labels must be at least 0, got -1"):
        make_image_pool(x, y - 1, x, y)
    with pytest.raises(LabelError, match=r"integers from 0, got torch\.float32"):
        make_image_pool(x, y.float(), x, y)
    with pytest.raises(DataError, match="test images must be finite"):
        make_image_pool(x, y, x / 0, y)
    with pytest.raises(DataError, match=r"must have one type, got \['torch.float32', 'torch.uint8"):
        make_image_pool([x[0], x[1].byte()], y, x, y)
    with pytest.raises(OptionError, match=r"std \(above 0\) must"):
        make_image_pool(x, y, x, y, std=(float("nan"),))
    with pytest.raises(DataError, match="bytes"):
        make_image_pool(x.long(), y, x.long(), y)
    with pytest.raises(OptionError, match="must have 1 or 3 numbers"):
        make_image_pool(x, y, x, y, mean=(0.1, 0.2))
    with pytest.raises(ShapeError, match=r"\(n, channels, height, width\)"):
        make_image_pool(x[:, 0], y, x[:, 0], y)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lr": 0.01}, "expected {'lr': 0.01}, got {'lr': 0.001}"),
        ({"epochs": 2}, "expected {'epochs': 2}, got {'epochs': 1}"),
    ],
)
def test_a_checkpoint_of_other_rules(tmp_path: Path, changed: dict, message: str) -> None:
    pool = small_pool()
    list(train_replay(pool, pairs(pool), [Network()], SmallNet, RULES, folder=tmp_path))
    other = ReplayRules(**{"epochs": 1, "per_class": 5, **changed})
    with pytest.raises(OptionError, match="to another setting") as caught:
        list(train_replay(pool, pairs(pool), [Network()], SmallNet, other, folder=tmp_path))
    assert message in str(caught.value)
    assert "choose another folder" in str(caught.value)


def test_a_checkpoint_of_other_data_or_another_backbone(tmp_path: Path) -> None:
    pool = small_pool()
    list(train_replay(pool, pairs(pool), [Network()], SmallNet, RULES, folder=tmp_path))
    more = small_pool((12, 10, 11, 13, 12, 10))
    scaled = replace(pool, scale=2 * pool.scale)
    for tasks, images, backbone in [
        (pairs(more), more, SmallNet),
        (pairs(pool), scaled, SmallNet),
        (pairs(pool)[::-1], pool, SmallNet),
        (pairs(pool), pool, lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 5))),
    ]:
        with pytest.raises(OptionError, match="to another setting"):
            list(train_replay(images, tasks, [Network()], backbone, RULES, folder=tmp_path))


def test_names_numbers_and_backbones_that_cannot_be() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'weight_norm'"):
        Network("weightnorm")
    with pytest.raises(UnknownNameError, match="unknown mask 'grup'; did you mean 'group'"):
        Network(mask="grup")
    with pytest.raises(OptionError, match="seed must be at least 0"):
        Network(seed=-1)
    with pytest.raises(UnknownNameError, match="unknown optimizer 'adamw'; did you mean 'adam'"):
        ReplayRules(optimizer="adamw")
    with pytest.raises(OptionError, match="batch_size at least 2"):
        ReplayRules(batch_size=1)
    with pytest.raises(OptionError, match="lr must be above 0"):
        ReplayRules(lr=0)
    pool = small_pool()
    with pytest.raises(ShapeError, match=r"features \(n, h\), got \(2, 5, 4, 4\)"):
        train_replay(pool, pairs(pool), [Network()], lambda: nn.Conv2d(3, 5, 3, padding=1), RULES)


def test_what_one_might_write_instead() -> None:
    x, y, pool = torch.zeros(2, 3, 4, 4), ["a", "b"], small_pool()
    with pytest.raises(LabelError, match="training labels must be integers from 0"):
        make_image_pool(x, y, x, y)
    with pytest.raises(OptionError, match=r"write Network\('linear', 'group'\)"):
        Network("linear+group")
    with pytest.raises(OptionError, match="make_backbone must be a function, got a network"):
        train_replay(pool, pairs(pool), [Network()], SmallNet(), RULES)
    lists = [task.tolist() for task in pairs(pool)]
    as_lists = next(train_replay(pool, lists, [Network()], SmallNet, RULES))
    as_tensors = next(train_replay(pool, pairs(pool), [Network()], SmallNet, RULES))
    assert as_lists.features.equal(as_tensors.features)


def test_one_network_for_all() -> None:
    pool, shared = small_pool(), SmallNet()
    with pytest.raises(
        OptionError, match=r"a new network each time, got one twice.* copy.deepcopy\(network\)"
    ):
        train_replay(pool, pairs(pool), [Network(), Network(seed=1)], lambda: shared, RULES)


@pytest.mark.parametrize("orders", [[(0, 1, 1)], [(0, 1)], [(0, 1, 2), (0, 1, 2)]])
def test_orders_that_are_none(orders: list[tuple[int, ...]]) -> None:
    pool = small_pool()
    with pytest.raises(OptionError, match="an order of 3 tasks for each of 1 networks, got"):
        train_replay(pool, pairs(pool), [Network()], SmallNet, RULES, orders=orders)
