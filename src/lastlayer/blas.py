"""BLAS's symmetric product of tensors, computed in several threads of Python at once."""

import ctypes
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

try:
    from scipy.linalg import blas, cython_blas
    from threadpoolctl import ThreadpoolController
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


class _Limit:
    """How many threads BLAS has: a setting of the process, and who needs it as it is."""

    lock = threading.RLock()
    users: ClassVar[set[int]] = set()
    restore: ClassVar[Callable[[], None] | None] = None

    def __init__(self, n: int) -> None:
        with self.lock:
            if _Limit.restore is None:
                _anybody_may_set()
                _Limit.restore = _libraries().limit(limits=n).restore_original_limits
            self.users.add(id(self))

    def end(self) -> None:
        with self.lock:
            self.users.discard(id(self))
            if not self.users and _Limit.restore is not None:
                _anybody_may_set()
                _Limit.restore()
                _Limit.restore = None
                _anybody_may_set()

    # An interrupt may keep the block from ending it: then it ends with the block's frame.
    __del__ = end


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Let BLAS have n threads in this block, or as many as those have who are in one already.

    The number is the process's: it is as before when the last one has left.
    """
    if blas is None:
        yield
        return
    limit = _Limit(n)
    try:
        yield
    finally:
        limit.end()


@cache
def _libraries() -> Any:
    """Find the libraries of BLAS, and no others: OpenMP's number is each thread's own."""
    return ThreadpoolController().select(user_api="blas")


def _anybody_may_set() -> None:
    """Let any thread set the number: threadpoolctl lets only the one that was first.

    Another may be the last to leave.
    """
    for library in _libraries().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):  # not in all versions
            library.clear_controlling_thread(force=True)
