"""Tensors that can be computed with: dense, in memory, with real numbers."""

import torch
from torch import Tensor

from lastlayer.errors import DataError

_REAL = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool}
    | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
    | {torch.uint16, torch.uint32, torch.uint64}
)


def check_dense(tensor: Tensor, what: str) -> None:
    """Raise DataError for a tensor that is sparse, quantised, without values, or not real.

    >>> check_dense(torch.zeros(2, device="meta"), "features")
    Traceback (most recent call last):
    ...
    lastlayer.errors.DataError: expected features with values, got a tensor on the device 'meta'
    """
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise DataError(f"expected {what} as a dense tensor, got a {kind} one: use to_dense()")
    if tensor.dtype not in _REAL:
        raise DataError(
            f"expected {what} of real numbers (float16 to float64, or whole), got {tensor.dtype}"
        )
    if tensor.is_meta:
        raise DataError(f"expected {what} with values, got a tensor on the device 'meta'")
