"""The nearest neighbours of stored rows among the others: without themselves and their copies."""

import torch
from torch import Tensor

from lastlayer.errors import DataError
from lastlayer.heads.neighbours.nearest import Nearest, extend, nobody
from lastlayer.heads.neighbours.stored_rows import Memory


def nearest_others(z: Tensor, y: Tensor, k: int, memory: Memory) -> Nearest:
    """Return the k nearest stored rows of each row, but for those that equal it in label too.

    >>> memory = Memory(1)
    >>> z, y = torch.tensor([[0.0], [0.0], [0.0], [3.0]]), torch.tensor([0, 0, 1, 1])
    >>> memory.append(z, y)
    >>> nearest_others(z, y, 1, memory).row.T
    tensor([[2, 2, 0, 0]])
    """
    result, wanted = nobody(len(z), k, z.device), torch.arange(len(z), device=z.device)
    look = k + 1
    while len(wanted):
        found = extend(nobody(len(wanted), look, z.device), z[wanted], memory.z)
        copy = (found.squared == 0) & (memory.y[found.row] == y[wanted, None])
        lost = (~copy.any(dim=1) & (found.squared[:, -1] > 0)).nonzero().flatten()
        if len(lost):
            raise DataError(
                f"rows to leave out must have been learned with their labels, but row "
                f"{int(wanted[lost[0]])} was not"
            )
        enough = (copy.any(dim=1) & (copy.sum(dim=1) + k <= look)) | (look >= len(memory))
        others = _without(found, copy, k)
        for own, new in zip(result, others, strict=True):
            own[wanted[enough]] = new[enough]
        wanted, look = wanted[~enough], 2 * look
    return result


def _without(found: Nearest, gone: Tensor, k: int) -> Nearest:
    """Drop some neighbours, and return the k nearest of the others."""
    first = gone.int().argsort(dim=1, stable=True)
    squared = found.squared.masked_fill(gone, torch.inf).gather(1, first)[:, :k]
    return Nearest(squared, found.row.masked_fill(gone, -1).gather(1, first)[:, :k])
