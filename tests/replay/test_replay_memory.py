"""How often each class comes in an epoch, and where it comes from."""

from fractions import Fraction
from itertools import chain
from math import floor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.replay.training.replay_stream import (
    REMEMBER,
    REPLAY,
    ReplayStream,
    generator_for,
    remember,
    replayed,
    with_replay,
)

COUNTS = st.lists(st.integers(1, 30), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32)


def labels(counts: list[int]) -> torch.Tensor:
    return torch.cat([torch.full((n,), c) for c, n in enumerate(counts)])


@given(COUNTS, COUNTS, st.decimals(0, 4, places=3), SEEDS)
def test_instances_per_class_are_the_definition(new, old, balance, seed) -> None:
    y = labels(old + new)
    memory, task = torch.arange(sum(old)), torch.arange(sum(old), len(y))
    draw = generator_for(REPLAY, seed)
    epoch = with_replay(task, memory, y, float(balance), draw)
    counts = torch.bincount(y[epoch], minlength=len(old + new)).tolist()
    assert counts[len(old) :] == new
    assert counts[: len(old)] == [floor(Fraction(balance) * max(new) + Fraction(1, 2))] * len(old)
    assert epoch[: len(task)].equal(task)
    for c, n in enumerate(old):  # over- and undersampling is as even as it can be
        times = torch.bincount(epoch[y[epoch] == c], minlength=len(y))[y == c]
        assert len(times) == n
        assert int(times.max() - times.min()) <= 1


@given(st.integers(1, 40), st.integers(1, 5), st.integers(2, 4), st.integers(0, 9))
def test_balance_1_gives_equal_classes(n, classes, n_tasks, seed) -> None:
    y = labels([n] * classes * n_tasks)
    tasks = list(torch.arange(len(y)).split(n * classes))
    stream = ReplayStream(tasks, y, n, 1.0, seed)
    kept = y[remember(tasks[0], y, n, generator_for(1, seed, 0))].unique()
    counts = torch.bincount(y[stream.rows[1]])
    assert counts[kept].tolist() == [n] * len(kept)
    assert counts[classes : 2 * classes].tolist() == [n] * classes


@pytest.mark.parametrize(
    ("balance", "largest", "n"), [(0, 9, 0), (0.5, 3, 2), (0.29, 50, 15), (1e-05, 50_000, 1)]
)
def test_a_half_rounds_up_in_decimals(balance: float, largest: int, n: int) -> None:
    assert replayed(balance, largest) == n


def test_a_memory_is_drawn_with_replacement_from_the_whole_task() -> None:
    y = labels([5, 500])
    kept = remember(torch.arange(505), y, 200, generator_for(0, 0))
    assert len(kept) == 400
    assert len(kept.unique()) < 400
    assert int((y[kept] == 0).sum()) < 20  # the task decides, not the class


@pytest.mark.parametrize(("again", "new"), [(1, 3), (3, 1)])
def test_a_class_that_comes_back_is_one_of_the_task(again: int, new: int) -> None:
    """It is taken from there, not from the memory, and the balance counts it."""
    y = torch.tensor([0, 0, 1, 1, *[0] * again, *[2] * new])
    epoch = with_replay(torch.arange(4, 8), torch.arange(4), y, 1.0, generator_for(0, 0))
    assert torch.bincount(y[epoch]).tolist() == [again, 3, new]
    assert not bool(torch.isin(torch.tensor([0, 1]), epoch).any())


@given(st.lists(COUNTS, min_size=2, max_size=4), st.decimals(0, 2, places=2), st.integers(0, 9))
def test_a_stream_keeps_the_definition_task_after_task(counts, balance, seed) -> None:
    y = labels(list(chain.from_iterable(counts)))
    tasks = list(torch.arange(len(y)).split([sum(task) for task in counts]))
    stream = ReplayStream(tasks, y, min(map(min, counts)), float(balance), seed)
    old = torch.zeros(0, dtype=torch.int64)  # what the memory holds by now
    for task, (rows, own) in enumerate(zip(stream.rows, counts, strict=True)):
        expected = torch.bincount(y[tasks[task]], minlength=len(y))
        expected[old] = floor(Fraction(balance) * max(own) + Fraction(1, 2))
        assert torch.bincount(y[rows], minlength=len(y)).equal(expected)
        draw = generator_for(REMEMBER, seed, task)
        kept = remember(tasks[task], y, min(map(min, counts)), draw)
        old = torch.cat([old, y[kept].unique()])


def test_the_place_in_the_run_decides_the_order() -> None:
    y = labels([20, 20, 20])
    tasks = list(torch.arange(60).split(20))
    stream, same = (ReplayStream(tasks, y, 20, 0.3, 4) for _ in range(2))
    other = ReplayStream(tasks, y, 20, 0.3, 5)
    orders = [stream.order(task, epoch) for task in range(3) for epoch in range(3)]
    again = [same.order(task, epoch) for task in range(3) for epoch in range(3)]
    assert all(a.equal(b) for a, b in zip(orders, again, strict=True))
    assert not orders[3].equal(orders[4])
    assert orders[3].sort().values.equal(orders[4].sort().values)  # chosen once for a task
    assert not stream.order(1, 0).equal(other.order(1, 0))
    assert [len(rows) for rows in stream.rows] == [20, 26, 32]
