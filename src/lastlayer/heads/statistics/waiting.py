"""Memory for rows of small batches, which wait until they are added up together."""

from typing import Any

import torch
from torch import Tensor

GATHERED, GATHERED_BYTES = 4096, 8 << 20  # rows that wait, at most


def most_waiting(h: int) -> int:
    """Return how many rows of h features wait at most; a batch of more than half does not."""
    return max(1, min(GATHERED, GATHERED_BYTES // (8 * h)))


class WaitingRows:
    """Memory for rows as wide as others, and their labels; the owner knows how many there are."""

    def __init__(self, like: Tensor) -> None:
        self.most = most_waiting(like.shape[1])
        with torch.inference_mode(False):
            self.z = like.new_empty(self.most, like.shape[1])
            self.y = like.new_empty(self.most, dtype=torch.int64)
        # By numpy a small copy takes a fraction of the time that torch needs to begin one.
        self._views: tuple[Any, Any] | None = None
        if like.is_cpu:
            self._views = self.z.numpy(), self.y.numpy()

    def put(self, begin: int, z: Tensor, y: Tensor) -> int:
        """Copy a batch behind the first rows; return where it ends, or 0 if it does not fit."""
        n = y.numel()
        end = begin + n
        if 2 * n > self.most or end > self.most:
            return 0
        if self._views is not None and z.is_cpu and z.dtype != torch.bfloat16:
            self._views[0][begin:end] = z.numpy()
            self._views[1][begin:end] = y.numpy()
        else:
            self.z[begin:end] = z
            self.y[begin:end] = y
        return end
