"""Task orders: tasks are permuted by a seed; classes never move between tasks."""

import numpy as np

from lastlayer.arguments import whole

MOST_TASKS = 1_000_000  # more is a mistake: an order is a list of as many numbers


def check_seed(name: str, seed: int) -> int:
    """Return a seed that numpy's generator accepts, or raise an error that says which it does."""
    return whole(seed, name, least=0, most=2**32 - 1)


def task_order(n_tasks: int, seed: int) -> tuple[int, ...]:
    """Return the paper's order of tasks: unchanged for seed 0, else numpy's legacy permutation.

    >>> task_order(5, seed=0)
    (0, 1, 2, 3, 4)
    >>> task_order(5, seed=1)
    (2, 1, 4, 0, 3)
    """
    n_tasks = whole(n_tasks, "a number of tasks", least=1, most=MOST_TASKS)
    seed = check_seed("an order", seed)
    if seed == 0:
        return tuple(range(n_tasks))
    return tuple(np.random.RandomState(seed).permutation(n_tasks).tolist())
