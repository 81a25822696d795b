"""LAPACK's functions that take long, called so that other threads of Python go on meanwhile.

scipy's of the same names hold Python's lock: whoever answers while a head is solved would wait.
"""

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack, lapack

Floats = NDArray[np.float64]
# How Cython writes arguments down: sizes of 32 bits, and values of the type double.
_NUMBER = r"(?:double|\w+cython_lapack_d)"
_DSYTRD = rf"void \(char \*, int \*,( {_NUMBER} \*,) int \*,\1{{4}} int \*, int \*\)"
_DSTERF = rf"void \(int \*,( {_NUMBER} \*,)\1 int \*\)"


def tridiagonal(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """Reduce a symmetric matrix (h, h) in columns, of which the lower triangle counts, in place.

    Returns:
        The diagonal (h,), what is beside it (h − 1,), and the factors of the reflectors (h − 1,).
    """
    h = len(matrix)
    work, _ = lapack.dsytrd_lwork(h, lower=1)
    dsytrd = _function("dsytrd", _DSYTRD, 10)
    if dsytrd is None or not (matrix.flags.f_contiguous and matrix.dtype == np.float64):
        matrix[:], d, e, tau, _ = lapack.dsytrd(matrix, lower=1, lwork=int(work))
        return d, e, tau
    d, e, tau = (np.empty(max(n, 1)) for n in (h, h - 1, h - 1))
    space, status = np.empty(int(work)), ctypes.c_int()
    size, length = ctypes.c_int(h), ctypes.c_int(int(work))
    of_size, of_length = ctypes.byref(size), ctypes.byref(length)
    pieces = (a.ctypes.data for a in (d, e, tau, space))
    dsytrd(b"L", of_size, matrix.ctypes.data, of_size, *pieces, of_length, ctypes.byref(status))
    return d, e[: h - 1], tau[: h - 1]


def eigenvalues(d: Floats, e: Floats) -> Floats:
    """Return the eigenvalues (h,), ascending, of a symmetric tridiagonal matrix."""
    values, beside, status = d.copy(), np.append(e, 0.0), ctypes.c_int()
    dsterf = _function("dsterf", _DSTERF, 4)
    if dsterf is None:
        values, failed = lapack.dsterf(values, e)
    else:
        size = ctypes.c_int(len(d))
        dsterf(ctypes.byref(size), values.ctypes.data, beside.ctypes.data, ctypes.byref(status))
        failed = status.value
    if failed:
        raise np.linalg.LinAlgError("the eigenvalues of a tridiagonal matrix were not found")
    return values


@cache
def _function(name: str, signature: str, arguments: int) -> Callable[..., Any] | None:
    """Return LAPACK's own function, or None where its arguments are others."""
    capsule = cython_lapack.__pyx_capi__.get(name)
    if capsule is None:
        return None
    name_of, pointer_to = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_to.restype, pointer_to.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    written = name_of(capsule)
    if not re.fullmatch(signature, written.decode()):
        return None
    kinds = [ctypes.c_char_p if name == "dsytrd" else ctypes.c_void_p]
    kind = ctypes.CFUNCTYPE(None, *kinds, *[ctypes.c_void_p] * (arguments - 1))
    return kind(pointer_to(capsule, written))
