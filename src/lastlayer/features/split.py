"""Split the rows of a data set into train and test, class by class, the same for a seed."""

import torch
from torch import Tensor

from lastlayer.arguments import real, whole
from lastlayer.errors import DataError, OptionError


def stratified(y: Tensor, test: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw the test rows: that part of each class, but at least one row and never all.

    A class with a single sample stays in train. Both row indices are ascending.

    >>> train, test = stratified(torch.tensor([0, 1, 0, 1, 0, 2]), test=0.4, seed=0)
    >>> len(train), len(test)
    (4, 2)
    """
    if not 0 < real(test, "test") < 1:
        raise OptionError(f"expected a part of the samples between 0 and 1 as test, got {test}")
    seed = whole(seed, "a seed", least=-(2**63), most=2**64 - 1)
    shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    chosen = torch.zeros(len(y), dtype=torch.bool)
    by_class = shuffled[y[shuffled].argsort(stable=True)]
    for rows in by_class.tensor_split(y.bincount().cumsum(0)[:-1]):
        n = len(rows)
        chosen[rows[: min(max(round(n * test), 1), n - 1)] if n > 1 else rows[:0]] = True
    if not chosen.any():
        raise DataError("expected a class with at least two samples to draw a test set from")
    return (~chosen).nonzero()[:, 0], chosen.nonzero()[:, 0]
