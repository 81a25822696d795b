"""One task without drift: all training rows, or a few drawn at random."""

import numpy as np
import torch
from torch import Tensor

from lastlayer.arguments import expect, whole
from lastlayer.scenarios.orders import check_seed
from lastlayer.scenarios.scenario import Data, Scenario, column, count_classes, learned

MOST_ROWS = 100_000_000  # drawn with replacement, 0.8 GB of row numbers


def iid(data: Data, label: str | None = None) -> Scenario:
    """Bring everything at once.

    >>> from lastlayer import load_features
    >>> [len(rows) for rows in iid(load_features("cifar10")).tasks]
    [50000]
    """
    label = learned(data, label)
    return _one_task("iid", data, label, torch.arange(len(column(data.train, label))))


def subset(
    data: Data, size: int, seed: int = 0, replace: bool = True, label: str | None = None
) -> Scenario:
    """Bring ``size`` training rows at once, as drawn; the test set stays whole.

    Args:
        data: The training and test split.
        size: How many rows.
        seed: Decides which rows; with replacement they are exactly the paper's.
        replace: Whether a row may come more than once, as in the paper.
        label: The column that is learned; by default the primary one.

    >>> from lastlayer import load_features
    >>> subset(load_features("cifar10"), size=5, seed=1).tasks
    (tensor([33003, 12172,  5192, 32511, 43723]),)
    """
    label = learned(data, label)
    n = len(column(data.train, label))
    expect(replace, bool, "replace", "True or False")
    size = whole(size, "a subset size", least=1, most=MOST_ROWS if replace else n)
    random = np.random.RandomState(check_seed("a seed", seed))
    # int64 by name: numpy's own default, and with it the numbers drawn, depend on the platform
    drawn = random.randint(0, n, size, dtype=np.int64) if replace else random.permutation(n)[:size]
    return _one_task("subset", data, label, torch.from_numpy(drawn).long())


def _one_task(name: str, data: Data, label: str, rows: Tensor) -> Scenario:
    return Scenario(
        name=name,
        label=label,
        n_classes=count_classes(data, label),
        tasks=(rows,),
        test_tasks=(torch.arange(len(column(data.test, label))),),
        order=(0,),
    )
