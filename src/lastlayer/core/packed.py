"""Symmetric matrices as files keep them: the lower triangle, row after row, in half the space."""

from math import isqrt

from torch import Tensor


def pack(lower: Tensor) -> Tensor:
    """Return the lower triangles (…, h(h + 1)/2) of matrices (…, h, h).

    >>> import torch
    >>> pack(torch.tensor([[1, 0, 0], [2, 3, 0], [4, 5, 6]])).tolist()
    [1, 2, 3, 4, 5, 6]
    """
    h = lower.shape[-1]
    packed = lower.new_empty(*lower.shape[:-2], h * (h + 1) // 2)
    for row in range(h):
        packed[..., _begin(row) : _begin(row + 1)] = lower[..., row, : row + 1]
    return packed


def unpack(packed: Tensor) -> Tensor:
    """Return matrices (…, h, h) of lower triangles (…, h(h + 1)/2), above them zero.

    >>> import torch
    >>> unpack(torch.tensor([1, 2, 3])).tolist()
    [[1, 0], [2, 3]]
    """
    h = side(packed.shape[-1])
    lower = packed.new_zeros(*packed.shape[:-1], h, h)
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


def _begin(row: int) -> int:
    return row * (row + 1) // 2
