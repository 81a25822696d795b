"""Mini-batches: shuffled row positions, the same for the same seed."""

from collections.abc import Iterator

import torch
from torch import Tensor

BATCH_SIZE = 264  # the authors' code


def shuffled_batches(n: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield one epoch of positions 0…n−1 in random order; the last batch may be smaller.

    >>> [batch.numel() for batch in shuffled_batches(7, 3, torch.Generator().manual_seed(0))]
    [3, 3, 1]
    """
    yield from torch.randperm(n, generator=generator).split(batch_size)
