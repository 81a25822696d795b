"""Symmetric matrices by their lower triangle: packed in files, and in memory of which half is used.

A wide matrix in memory lies row after row as any other, but what is above its diagonal is never
written: the system gives no memory for that, and products run as fast as ever.
"""

from collections.abc import Iterator
from math import isqrt

import torch
from torch import Tensor

WIDE = 2900  # rows from which a matrix gets memory that nothing else has used
_STEP = 128  # rows of a wide matrix at a time, up to the diagonal


def pack(lower: Tensor) -> Tensor:
    """Return the lower triangles (…, h(h + 1)/2) of matrices (…, h, h).

    >>> pack(torch.tensor([[1, 0, 0], [2, 3, 0], [4, 5, 6]])).tolist()
    [1, 2, 3, 4, 5, 6]
    """
    h = lower.shape[-1]
    packed = lower.new_empty(*lower.shape[:-2], h * (h + 1) // 2)
    for row in range(h):
        packed[..., _begin(row) : _begin(row + 1)] = lower[..., row, : row + 1]
    return packed


def unpack(packed: Tensor) -> Tensor:
    """Return matrices (…, h, h) of lower triangles (…, h(h + 1)/2), as ``lower_zeros`` has them.

    >>> unpack(torch.tensor([1, 2, 3])).tolist()
    [[1, 0], [2, 3]]
    """
    h = side(packed.shape[-1])
    lower = lower_zeros((*packed.shape[:-1], h, h), packed.dtype)
    for row in range(h):
        lower[..., row, : row + 1] = packed[..., _begin(row) : _begin(row + 1)]
    return lower


def side(n: int) -> int:
    """Return the size h of a matrix whose lower triangle has n = h(h + 1)/2 numbers.

    >>> side(10)
    4
    """
    h = (isqrt(8 * n + 1) - 1) // 2
    if _begin(h) != n:
        raise ValueError(f"no lower triangle has {n} numbers")
    return h


def symmetric(lower: Tensor) -> Tensor:
    """Return the whole of symmetric matrices (…, h, h) of which the lower triangle is known."""
    whole = lower.tril()
    for start, stop in _steps(lower):  # by blocks: wide ones take as much memory again otherwise
        whole[..., :start, start:stop] = whole[..., start:stop, :start].mT
        corner = whole[..., start:stop, start:stop]
        corner += corner.tril(-1).mT
    return whole


def lower_zeros(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    """Return lower triangles (…, h, h) of zeros, above which may be anything in wide matrices.

    What is above is not written: that memory is then never taken from the system.
    """
    made = torch.empty(shape, dtype=dtype)
    if not made.is_meta:  # it has no numbers, and may stand for a size that no machine has
        for part in lower_parts(made):
            part.zero_()
    return made


def lower_copy(lower: Tensor) -> Tensor:
    """Return a copy of lower triangles (…, h, h), above which may be anything in wide matrices."""
    made = torch.empty_like(lower)
    for part, source in zip(lower_parts(made), lower_parts(lower), strict=True):
        part.copy_(source)
    return made


def add_lower(lower: Tensor, more: Tensor) -> None:
    """Add lower triangles (…, h, h) to others, in place."""
    for part, other in zip(lower_parts(lower), lower_parts(more), strict=True):
        part.add_(other)


def lower_parts(lower: Tensor) -> Iterator[Tensor]:
    """Yield views that hold the lower triangles (…, h, h): wide ones in blocks of rows."""
    for start, stop in _steps(lower, WIDE):
        yield lower[..., start:stop, :stop]


def _steps(square: Tensor, least: int = 0) -> Iterator[tuple[int, int]]:
    """Yield where blocks of rows begin and end: one block where there are fewer features."""
    h = square.shape[-1]
    size = _STEP if h >= least else max(h, 1)
    return ((start, min(start + size, h)) for start in range(0, h, size))


def _begin(row: int) -> int:
    return row * (row + 1) // 2
