"""Least squares from second moments alone, in a basis in which every penalty is cheap."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import lapack
from torch import Tensor

from lastlayer.core.blas import eigenvalues, tridiagonal
from lastlayer.core.threads import blas_threads

_SMALL = 32  # features up to which eigenvectors cost nothing
_FEW = 0.6  # samples for each feature below which it pays to look for what varies first


@dataclass(frozen=True)
class Moments:
    """What least squares needs from n samples: moments of centred features and one-hot targets."""

    gram: Tensor  # (h, h) Σ (z − m)(z − m)ᵀ, symmetric
    cross: Tensor  # (h, n_classes) Σ (z − m)(y − p)ᵀ
    spread: float  # Σ ‖y − p‖²
    n: float  # samples; effective ones where they weigh unequally
    samples: int | None = None  # that the Gram matrix is made of, if known: its rank is no larger

    @property
    def level(self) -> float:
        """The mean eigenvalue of the Gram matrix: what a relative penalty is relative to."""
        return float(self.gram.diagonal().mean())


class Reduced(ABC):
    """Moments in a basis in which every penalty is cheap."""

    values: Tensor  # (h,) eigenvalues of the Gram matrix
    cross: Tensor  # (h, n_classes) in that basis

    @abstractmethod
    def solve(self, penalty: float) -> Tensor:
        """Return the solution (h, n_classes) in this basis."""

    @abstractmethod
    def back(self, solution: Tensor) -> Tensor:
        """Bring a solution back to the features' basis."""


class _Eigenbasis(Reduced):
    """By eigenvectors: 9 h³ operations, on any device."""

    def __init__(self, gram: Tensor, cross: Tensor) -> None:
        values, self._vectors = torch.linalg.eigh(gram)
        self.values = values.clamp(min=0)
        self.cross = self._vectors.mT @ cross

    def solve(self, penalty: float) -> Tensor:
        return self.cross / (self.values + penalty)[:, None]

    def back(self, solution: Tensor) -> Tensor:
        turned: Tensor = self._vectors @ solution
        return turned


class _Tridiagonal(Reduced):
    """By Householder's reduction G = P T Pᵀ, T tridiagonal: 4/3 h³ operations, no eigenvectors."""

    def __init__(self, gram: Tensor, cross: Tensor) -> None:
        # LAPACK's matrices lie in columns; a symmetric one is the same, and may be overwritten.
        reduced = gram.numpy().copy().T
        self._d, self._e, self._tau = tridiagonal(reduced)
        self._reflectors = np.asfortranarray(reduced[1:, :-1])
        values = eigenvalues(self._d, self._e)
        self.values = torch.from_numpy(values).clamp(min=0)
        self.cross = torch.from_numpy(self._rotate("T", cross.numpy()))

    def _rotate(self, trans: str, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multiply by P or Pᵀ: the first row stays, the reflectors turn the others."""
        rest = np.asfortranarray(columns[1:])
        turned, _, _ = lapack.dormqr(
            "L", trans, self._reflectors, self._tau, rest, lwork=64 * max(rest.shape[1], 1)
        )
        return np.concatenate([columns[:1], turned])

    def solve(self, penalty: float) -> Tensor:
        _, _, solution, _ = lapack.dptsv(self._d + penalty, self._e, self.cross.numpy())
        return torch.from_numpy(np.ascontiguousarray(solution))

    def back(self, solution: Tensor) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(self._rotate("N", solution.numpy())))


class _LowRank(Reduced):
    """By an orthonormal basis of what varies, where samples are fewer than features.

    A pivoted Cholesky decomposition stops at the rank r after about h² r operations; the rest is
    as before, of size r. What it leaves out is rounding.
    """

    def __init__(self, gram: Tensor, cross: Tensor) -> None:
        factor, pivots, rank, _ = lapack.dpstrf(gram.numpy().copy().T, lower=1, overwrite_a=1)
        rank = max(int(rank), 1)
        lower = gram.new_zeros(len(gram), rank)
        lower[torch.from_numpy(pivots - 1).long()] = torch.from_numpy(np.tril(factor[:, :rank]))
        self._basis, upper = torch.linalg.qr(lower)
        small = upper @ upper.mT
        self._inner = _small_or_wide(small, self._basis.mT @ cross)
        self.values, self.cross = self._inner.values, self._inner.cross

    def solve(self, penalty: float) -> Tensor:
        return self._inner.solve(penalty)

    def back(self, solution: Tensor) -> Tensor:
        mapped: Tensor = self._basis @ self._inner.back(solution)
        return mapped


def _small_or_wide(gram: Tensor, cross: Tensor) -> Reduced:
    return (_Eigenbasis if len(gram) <= _SMALL else _Tridiagonal)(gram, cross)


def reduce(moments: Moments) -> Reduced:
    """Reduce moments once, by the fastest method on their device."""
    if moments.gram.device.type != "cpu" or len(moments.gram) <= _SMALL:
        return _Eigenbasis(moments.gram, moments.cross)
    with blas_threads(torch.get_num_threads()):
        if moments.samples is not None and moments.samples < _FEW * len(moments.gram):
            return _LowRank(moments.gram, moments.cross)
        return _Tridiagonal(moments.gram, moments.cross)
