"""What a batch adds to class statistics: its classes, their sizes and means, its scatter."""

import threading
from collections.abc import Iterator

import torch
from scipy.linalg.blas import dsyrk
from threadpoolctl import ThreadpoolController
from torch import Tensor

_BLAS = ThreadpoolController()
_ONE_AT_A_TIME = threading.Lock()  # the limit is the process's: two at once would not restore it
_WORKSPACE = 8 << 20  # bytes: a batch is learned in pieces of that size
_LOCAL = threading.local()
_FEW, _MANY = 1 << 17, 1 << 27  # products from which syrk pays, and from which two threads do


def pieces(z: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut a batch so that a piece in float64 fills the workspace at most."""
    n = max(_WORKSPACE // (8 * z.shape[1]), 1)
    return zip(z.split(n), y.split(n), strict=True)


def _workspace(n: int, mean: Tensor) -> Tensor:
    """Give room for (n, h) in float64: the same each time, since fresh memory is slow."""
    if mean.device.type != "cpu":
        return mean.new_empty(n, mean.shape[1])
    size = n * mean.shape[1]
    room: Tensor | None = getattr(_LOCAL, "room", None)
    if room is None or room.numel() < size or room.dtype != mean.dtype:
        room = _LOCAL.room = torch.empty(size, dtype=mean.dtype)
    return room[:size].view(n, -1)


def moments(
    z: Tensor, y: Tensor, origin: Tensor, size: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Measure a batch from its classes' origins: its classes, their sizes and means, the samples.

    The samples (n, h) lie in the workspace: they are gone with the next call.
    """
    d = torch.index_select(origin, 0, y, out=_workspace(len(y), origin))
    torch.sub(z, d, out=d)
    mean = torch.zeros_like(origin).index_add_(0, y, d) / size.clamp(min=1)[:, None]
    present = size.nonzero().squeeze(1)
    return present, size[present], mean[present], d


def first_of_each(y: Tensor, n_classes: int) -> Tensor:
    """Give the position (n_classes,) of the first sample of each class; 0 if it has none."""
    position = torch.arange(len(y), device=y.device)
    return y.new_zeros(n_classes).scatter_reduce_(0, y, position, "amin", include_self=False)


def add_gram(scatter: Tensor, rows: Tensor, sign: int = 1) -> None:
    """Add ±rowsᵀ rows to the lower triangle of ``scatter`` (h, h), in place.

    The product is symmetric: BLAS's syrk computes half of it, in half the time of a matrix product.
    It runs with PyTorch's number of threads, or one where there is little to do.
    """
    few = rows.numel() * rows.shape[1] < _FEW
    if few or not (scatter.device.type == "cpu" and scatter.dtype == torch.float64):
        scatter.addmm_(rows.mT, rows, alpha=sign)
        return
    threads = torch.get_num_threads() if rows.numel() * rows.shape[1] > _MANY else 1
    # A row-major matrix is its transpose to BLAS: our lower triangle is its upper one.
    columns, upper = rows.numpy().T, scatter.numpy().T
    with _ONE_AT_A_TIME, _BLAS.limit(limits=threads, user_api="blas"):
        dsyrk(sign, columns, beta=1.0, c=upper, overwrite_c=1)


def symmetric(lower: Tensor) -> Tensor:
    """Give the whole of a symmetric matrix of which the lower triangle is known."""
    return lower.tril() + lower.tril(-1).mT
