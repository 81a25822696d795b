"""Rows of a known model, with labels of which some are known to be wrong."""

from typing import NamedTuple

import torch
from torch import Tensor

import lastlayer as ll


class Drawn(NamedTuple):
    z: Tensor  # (n, h)
    y: Tensor  # (n,) the given labels
    truth: Tensor  # (n,)

    @property
    def wrong(self) -> Tensor:
        return self.y != self.truth

    def features(self, test: float = 0.1) -> ll.Features:
        """Give all rows as training rows, and as many of them again as rows to test with."""
        n = max(int(test * len(self.y)), 1)
        other = draw(n, len(self.truth.unique()), self.z.shape[1], seed=1, means_of=self)
        return ll.Features.from_arrays(self.z, self.y, test=(other.z, other.y))


def draw(
    n: int, n_classes: int, h: int, *, apart: float = 1.0, rate: float = 0.0, alike: float = 0.0,
    seed: int = 0, means_of: Drawn | None = None,
) -> Drawn:  # fmt: skip
    """Draw Gaussian classes; labels are wrong by the noise model of the audit.

    Args:
        apart: how far classes are apart, in deviations: smaller, they overlap more.
        rate: the share of labels that are wrong.
        alike: the share of these that are a class the row's own is confused with, as often.
        means_of: rows whose class means to take.
    """
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    means = apart * normal(n_classes, h)
    if means_of is not None:
        own = [means_of.z[means_of.truth == c].mean(dim=0) for c in range(n_classes)]
        means = torch.stack(own)
    truth = torch.randint(n_classes, (n,), generator=random)
    truth[:n_classes] = torch.arange(n_classes)
    z = means[truth] + normal(n, h)
    p = torch.softmax(-0.5 * torch.cdist(z, means).square(), dim=1)
    mass = torch.zeros(n_classes, n_classes, dtype=torch.float64).index_add_(0, truth, p)
    off = 1 - torch.eye(n_classes, dtype=torch.float64)
    likeness = mass * off / (mass * off).sum(dim=1, keepdim=True)
    chances = (1 - alike) * off / (n_classes - 1) + alike * likeness
    other = torch.multinomial(chances[truth], 1, generator=random)[:, 0]
    wrong = torch.rand(n, generator=random) < rate
    return Drawn(z, torch.where(wrong, other, truth), truth)
