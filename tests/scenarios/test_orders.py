"""Task orders are the paper's, to the index."""

import numpy as np
import pytest

from lastlayer.errors import OptionError
from lastlayer.scenarios import task_order


@pytest.mark.parametrize(
    ("seed", "order"), [(0, (0, 1, 2, 3, 4)), (1, (2, 1, 4, 0, 3)), (2, (2, 4, 1, 3, 0))]
)
def test_the_orders_of_five_tasks(seed: int, order: tuple[int, ...]) -> None:
    assert task_order(5, seed) == order


@pytest.mark.parametrize("n_tasks", [5, 8, 10, 50])
@pytest.mark.parametrize("seed", range(1, 8))
def test_orders_are_those_of_the_global_generator(n_tasks: int, seed: int) -> None:
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    expected = tuple(np.random.permutation(n_tasks).tolist())  # noqa: NPY002
    np.random.set_state(state)  # noqa: NPY002
    assert task_order(n_tasks, seed) == expected


def test_the_global_generator_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    task_order(50, seed=3)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize(("n_tasks", "seed"), [(0, 0), (-1, 0), (5, -1), (5, 2**32)])
def test_wrong_numbers_are_refused(n_tasks: int, seed: int) -> None:
    with pytest.raises(OptionError, match="must be"):
        task_order(n_tasks, seed)
