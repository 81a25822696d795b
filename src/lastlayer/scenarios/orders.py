"""Task orders: tasks are permuted by a seed; classes never move between tasks."""

import numpy as np

from lastlayer.errors import OptionError


def check_seed(name: str, seed: int) -> int:
    """Give a seed that numpy's generator takes, or say which it does."""
    if not 0 <= seed < 2**32:
        raise OptionError(f"expected {name} from 0 to 2³²−1, got {seed}")
    return seed


def task_order(n_tasks: int, seed: int) -> tuple[int, ...]:
    """Give the paper's order of tasks: as they are for seed 0, else numpy's legacy permutation.

    >>> task_order(5, seed=0)
    (0, 1, 2, 3, 4)
    >>> task_order(5, seed=1)
    (2, 1, 4, 0, 3)
    """
    if n_tasks < 1:
        raise OptionError(f"expected at least one task, got {n_tasks}")
    if check_seed("an order", seed) == 0:
        return tuple(range(n_tasks))
    return tuple(np.random.RandomState(seed).permutation(n_tasks).tolist())
