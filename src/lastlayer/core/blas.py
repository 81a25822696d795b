"""BLAS's symmetric product of tensors, computed in several threads of Python at once."""

import ctypes
import re
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from lastlayer.core.threads import blas_threads

try:
    from scipy.linalg import blas, cython_blas
except ImportError:  # without scipy everything works, at half the speed on a CPU
    blas = None

_FEW, _MANY = 1 << 17, 1 << 26  # products from which syrk pays, and from which more threads do
_MOST = 2**31 - 1  # the largest size that BLAS takes
# How Cython writes the arguments down: sizes of 32 bits, and values of the type double.
_SIGNATURE = re.compile(
    r"void \(char \*, char \*, int \*, int \*, (double|\w+cython_blas_d) \*, \1 \*, int \*, "
    r"\1 \*, \1 \*, int \*\)"
)


def add_symmetric(scatter: Tensor, rows: Tensor, sign: int = 1) -> None:
    """Add ±rowsᵀ rows to the lower triangle of ``scatter`` (h, h), in place, on a CPU.

    BLAS's syrk computes half of the product, in half the time of a whole one. It runs with
    PyTorch's number of threads, or one where there is little to do. Above the diagonal may be
    anything afterwards.

    >>> scatter = torch.zeros(2, 2, dtype=torch.float64)
    >>> add_symmetric(scatter, torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64))
    >>> scatter.tril()
    tensor([[1., 0.],
            [2., 5.]], dtype=torch.float64)
    """
    n, h = rows.shape
    work, largest = n * h * h, max(n, h, rows.stride(0))
    plain = scatter.dtype == rows.dtype == torch.float64 and scatter.is_contiguous()
    if blas is None or work < _FEW or largest > _MOST or not plain:
        scatter.addmm_(rows.mT, rows, alpha=sign)
        return
    if rows.stride(1) != 1 or rows.stride(0) < h:
        rows = rows.contiguous()
    with blas_threads(torch.get_num_threads() if work > _MANY else 1):
        # A row-major matrix is its transpose to BLAS: our lower triangle is its upper one.
        if (dsyrk := _dsyrk()) is None:
            blas.dsyrk(sign, rows.numpy().T, beta=1.0, c=scatter.numpy().T, overwrite_c=1)
            return
        size, depth, apart = (ctypes.c_int(k) for k in (h, n, max(rows.stride(0), h)))
        factor, one = ctypes.c_double(sign), ctypes.c_double(1)
        source = (ctypes.byref(factor), rows.data_ptr(), ctypes.byref(apart))
        target = (ctypes.byref(one), scatter.data_ptr(), ctypes.byref(size))
        dsyrk(b"U", b"N", ctypes.byref(size), ctypes.byref(depth), *source, *target)


@cache
def _dsyrk() -> Callable[..., None] | None:
    """Return BLAS's own function, or None where its arguments are others.

    scipy's function of that name holds Python's lock, so that threads would wait for one another.
    """
    capsule = cython_blas.__pyx_capi__["dsyrk"]
    name_of, pointer_to = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_to.restype, pointer_to.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = name_of(capsule)
    if not _SIGNATURE.fullmatch(name.decode()):
        return None
    kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_void_p] * 8)
    return kind(pointer_to(capsule, name))
