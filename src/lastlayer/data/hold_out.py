"""Hold rows out, class by class: to test, to calibrate or to choose by; the same for a seed."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import real, whole
from lastlayer.errors import DataError, OptionError

# The part of each class that is drawn as test, unless told otherwise.
TEST = 0.2


def stratified(y: Tensor, test: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw the test rows: that part of each class, but at least one row and never all.

    A class with a single sample stays in train. Both row indices are ascending.

    >>> train, test = stratified(torch.tensor([0, 1, 0, 1, 0, 2]), test=0.4, seed=0)
    >>> len(train), len(test)
    (4, 2)
    """
    if not 0 < real(test, "test") < 1:
        raise OptionError(f"test must be a part between 0 and 1, got {test}")
    seed = whole(seed, "a seed", least=-(2**63), most=2**64 - 1)
    shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    chosen = torch.zeros(len(y), dtype=torch.bool)
    by_class = shuffled[y[shuffled].argsort(stable=True)]
    for rows in by_class.tensor_split(y.bincount().cumsum(0)[:-1]):
        chosen[rows[: _part(len(rows), test)]] = True
    if not chosen.any():
        raise DataError("no class has two samples: there is none to draw for the test set")
    return (~chosen).nonzero()[:, 0], chosen.nonzero()[:, 0]


def _part(n: int, share: float) -> int:
    """Return that share of ``n`` rows: at least one and never all; of a single row none."""
    return min(max(round(n * share), 1), n - 1) if n > 1 else 0


def draw_share(
    y: Tensor, share: float, random: np.random.RandomState, called: Callable[[int], str]
) -> Tensor:
    """Draw rows to hold out: a share of each class, one at least and never all."""
    held = []
    for c in y.unique().tolist():
        own = (y == c).nonzero().flatten()
        if len(own) < 2:
            raise DataError(
                "calibration needs at least 2 rows of each class, one to learn and one to "
                f"calibrate with, got 1 of {called(c)}"
            )
        n = _part(len(own), share)
        held.append(own[torch.from_numpy(random.permutation(len(own))[:n])])
    return torch.cat(held).sort().values


def hold_out(
    y: Tensor, task: Tensor, group: Tensor | None, *, part: float, turn: int, seed: int
) -> Tensor:
    """Return which rows are held out, (n,) bool: about that part of each class in each task.

    A class keeps at least one row to be learned from. Turns 0, 1, … 1/part − 1 of one seed hold
    out each row once, except for those that classes keep.

    >>> y = torch.tensor([0] * 10 + [1] * 5 + [2])
    >>> held = hold_out(y, torch.zeros(16, dtype=torch.int64), None, part=0.2, turn=0, seed=0)
    >>> y[held].tolist()
    [0, 0, 1]
    """
    n = len(y)
    unit = torch.arange(n) if group is None else group.unique(return_inverse=True)[1]
    n_units = int(unit.max()) + 1
    first = torch.full((n_units,), n).scatter_reduce_(0, unit, torch.arange(n), "amin")
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(n_units, generator=generator)
    cell = (task * (int(y.max()) + 1) + y)[first]  # of its first row, where a source has many
    order = shuffled[cell[shuffled].argsort(stable=True)]
    # Walk through rows or sources in that order and take one whenever a whole part has gone by.
    passed = part * torch.arange(1, len(order) + 1, dtype=torch.float64) + (turn * part) % 1
    taken = torch.zeros(n_units, dtype=torch.bool)
    taken[order] = (passed + 1e-9).floor() > (passed - part + 1e-9).floor()
    return _classes_kept(y, unit, taken)[unit]


def _classes_kept(y: Tensor, unit: Tensor, taken: Tensor) -> Tensor:
    """Put a source back for each class that would have no row left to learn from."""
    while True:
        n_classes = int(y.max()) + 1
        left = y[~taken[unit]].bincount(minlength=n_classes)
        lost = (left == 0)[y]
        if not bool(lost.any()):
            return taken
        one = torch.zeros(n_classes, dtype=torch.int64)
        one[y[lost]] = unit[lost]
        taken = taken.clone()
        taken[one[y[lost].unique()]] = False
