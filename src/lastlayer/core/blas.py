"""BLAS's symmetric product, called so that other threads of Python go on meanwhile, and a factor.

scipy's own function holds Python's lock: whoever answers while a head learns would wait. Its Cython
module has pointers to the library's functions; where their arguments are not those that are
expected here, scipy's function does the work.
"""

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from scipy.linalg import blas, cython_blas
from torch import Tensor

from lastlayer.core.threads import blas_threads

_SYRK_FROM, _THREADS_FROM = (
    1 << 17,
    1 << 26,
)  # products from which syrk pays, and from which more threads do
_MOST = 2**31 - 1  # the largest size that BLAS takes
# How Cython writes the arguments down: sizes of 32 bits, and values of the type double.
_NUMBER = r"(?:double|\w+cython_blas_d)"
_SIGNATURES = {
    "dsyrk": rf"void \(char \*, char \*, int \*, int \*,( {_NUMBER} \*,)\1 int \*,\1\1 int \*\)",
}


@cache
def _function(name: str) -> Callable[..., Any] | None:
    """Return the library's own function, or None where its arguments are others."""
    if (capsule := cython_blas.__pyx_capi__.get(name)) is None:
        return None
    name_of, pointer_to = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_to.restype, pointer_to.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    written = name_of(capsule)
    if not re.fullmatch(_SIGNATURES[name], written.decode()):
        return None
    kinds = [
        ctypes.c_char_p if kind.startswith(b"char") else ctypes.c_void_p
        for kind in written.partition(b"(")[2].split(b", ")
    ]
    return ctypes.CFUNCTYPE(None, *kinds)(pointer_to(capsule, written))


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
    if work < _SYRK_FROM or largest > _MOST or not plain:
        scatter.addmm_(rows.mT, rows, alpha=sign)
        return
    if rows.stride(1) != 1 or rows.stride(0) < h:
        rows = rows.contiguous()
    with blas_threads(torch.get_num_threads() if work > _THREADS_FROM else 1):
        # A row-major matrix is its transpose to BLAS: our lower triangle is its upper one.
        if (dsyrk := _function("dsyrk")) is None:
            blas.dsyrk(sign, rows.numpy().T, beta=1.0, c=scatter.numpy().T, overwrite_c=1)
            return
        size, depth, apart = (ctypes.c_int(k) for k in (h, n, max(rows.stride(0), h)))
        factor, one = ctypes.c_double(sign), ctypes.c_double(1)
        source = (ctypes.byref(factor), rows.data_ptr(), ctypes.byref(apart))
        target = (ctypes.byref(one), scatter.data_ptr(), ctypes.byref(size))
        dsyrk(b"U", b"N", ctypes.byref(size), ctypes.byref(depth), *source, *target)


def factor_in_place(matrix: Tensor) -> bool:
    """Turn a symmetric matrix (h, h) into its lower Cholesky factor; return whether there is none.

    Only the lower triangle is read, and no memory is taken: what is above becomes zero.

    >>> matrix = torch.tensor([[4.0, 0.0], [2.0, 2.0]])
    >>> factor_in_place(matrix), matrix.tolist()
    (False, [[2.0, 0.0], [1.0, 1.0]])
    """
    failed = torch.zeros((), dtype=torch.int32, device=matrix.device)
    # In columns, as LAPACK wants it, a matrix in rows is its transpose: another order would copy.
    torch.linalg.cholesky_ex(matrix.mT, upper=True, out=(matrix.mT, failed))
    return bool(failed)
