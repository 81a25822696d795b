"""One task without drift: all rows, or the rows that the paper's generator draws."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.scenarios.toy_labels import toy

from lastlayer.errors import OptionError
from lastlayer.scenarios import iid, subset


def test_iid_is_one_task_with_every_row() -> None:
    scenario = iid(toy({"y": [2, 0, 1]}, {"y": [0, 3]}))
    assert (scenario.n_tasks, scenario.n_classes, scenario.order) == (1, 4, (0,))
    assert scenario.tasks[0].tolist() == [0, 1, 2]
    assert scenario.test_tasks is not None
    assert scenario.test_tasks[0].tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [100, 1000])
def test_a_subset_is_the_papers(seed: int, size: int) -> None:
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    expected = np.random.randint(0, 50_000, size)  # noqa: NPY002
    np.random.set_state(state)  # noqa: NPY002
    rows = subset(toy({"y": [0] * 50_000}), size, seed=seed).tasks[0]
    assert rows.tolist() == expected.tolist()


@given(st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_without_replacement_no_row_comes_twice(size: int, seed: int) -> None:
    data = toy({"y": [0] * 20})
    rows = subset(data, size, seed=seed, replace=False).tasks[0]
    assert rows.dtype == torch.int64
    assert len(set(rows.tolist())) == size
    assert set(rows.tolist()) <= set(range(20))
    assert torch.equal(rows, subset(data, size, seed=seed, replace=False).tasks[0])


def test_a_subset_leaves_the_test_set_whole() -> None:
    scenario = subset(toy({"y": range(9)}, {"y": range(4)}), 2)
    assert scenario.test_tasks is not None
    assert scenario.test_tasks[0].tolist() == [0, 1, 2, 3]


def test_wrong_sizes_and_seeds_are_refused() -> None:
    data = toy({"y": range(5)})
    with pytest.raises(OptionError, match="from 1 to 100000000, got 0"):
        subset(data, 0)
    with pytest.raises(OptionError, match="from 1 to 5, got 6"):
        subset(data, 6, replace=False)
    with pytest.raises(OptionError, match="got -1"):
        subset(data, 2, seed=-1)
    assert len(subset(data, 6).tasks[0]) == 6
