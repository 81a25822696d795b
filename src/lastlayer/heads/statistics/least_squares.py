"""Least squares from second moments alone, in a basis in which every penalty is cheap."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from lastlayer.core.threads import blas_threads
from lastlayer.heads.statistics.banded import Banded

_SMALL = 1000  # features up to which eigenvectors cost least
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


class Fits(NamedTuple):
    """What there is to know of the solutions W for several penalties λ, each (p,)."""

    penalty: Tensor
    volume: Tensor  # Σ log(1 + s_i/λ), s_i the eigenvalues of the Gram matrix
    freedom: Tensor  # tr A + 1: how many numbers each may choose for each column of targets
    fitted: Tensor  # tr(QᵀW)
    square: Tensor  # ‖W‖²


class Reduced(ABC):
    """Moments in a basis in which every penalty is cheap."""

    @abstractmethod
    def fits(self, penalties: Tensor) -> Fits:
        """Return what there is to know of several penalties (p,)."""

    @abstractmethod
    def solve(self, penalty: float) -> Tensor:
        """Return the solution (h, n_classes)."""


class Eigenbasis(Reduced):
    """By eigenvectors: 9 h³ operations."""

    def __init__(self, gram: Tensor, cross: Tensor) -> None:
        values, self._vectors = torch.linalg.eigh(gram)
        self._values = values.clamp(min=0)
        self._cross = self._vectors.mT @ cross

    def fits(self, penalties: Tensor) -> Fits:
        """Return what there is to know of several penalties (p,)."""
        inverse = 1 / (self._values + penalties[:, None])
        weight = self._cross.square().sum(dim=1)
        return Fits(
            penalties,
            volume=(self._values / penalties[:, None]).log1p().sum(dim=1),
            freedom=1 + inverse @ self._values,
            fitted=inverse @ weight,
            square=inverse.square() @ weight,
        )

    def solve(self, penalty: float) -> Tensor:
        """Return the solution (h, n_classes)."""
        solution: Tensor = self._vectors @ (self._cross / (self._values + penalty)[:, None])
        return solution


class Band(Reduced):
    """By a banded matrix: 2 h³ operations."""

    def __init__(self, gram: Tensor, cross: Tensor) -> None:
        self._banded = Banded(gram)
        self._cross = self._banded.turn(cross)

    def fits(self, penalties: Tensor) -> Fits:
        """Return what there is to know of several penalties (p,)."""
        h, columns = self._cross.shape
        found = []
        for some in penalties.split(self._banded.at_once(columns)):
            solution, volume, trace = self._banded.solve(self._cross, some)
            fitted = (solution * self._cross).sum(dim=(1, 2))
            freedom = 1 + h - some * trace
            square = solution.square().sum(dim=(1, 2))
            found.append(Fits(some, volume - h * some.log(), freedom, fitted, square))
        return Fits(*map(torch.cat, zip(*found, strict=True)))

    def solve(self, penalty: float) -> Tensor:
        """Return the solution (h, n_classes)."""
        solution, _, _ = self._banded.solve(self._cross, self._cross.new_tensor([penalty]))
        return self._banded.back(solution[0])


class LowRank(Reduced):
    """By an orthonormal basis of what varies, where samples are fewer than features.

    A pivoted Cholesky decomposition stops at the rank r after about h² r operations; the rest is
    as before, of size r. What it leaves out is rounding.
    """

    def __init__(self, gram: Tensor, cross: Tensor) -> None:
        with blas_threads(torch.get_num_threads()):
            factor, pivots, rank, _ = lapack.dpstrf(gram.numpy().copy().T, lower=1, overwrite_a=1)
        rank = max(int(rank), 1)
        lower = gram.new_zeros(len(gram), rank)
        lower[torch.from_numpy(pivots - 1).long()] = torch.from_numpy(np.tril(factor[:, :rank]))
        self._basis, upper = torch.linalg.qr(lower)
        self._inner = _by_size(upper @ upper.mT, self._basis.mT @ cross)

    def fits(self, penalties: Tensor) -> Fits:
        """Return what there is to know of several penalties (p,)."""
        return self._inner.fits(penalties)

    def solve(self, penalty: float) -> Tensor:
        """Return the solution (h, n_classes)."""
        solution: Tensor = self._basis @ self._inner.solve(penalty)
        return solution


def reduce(moments: Moments) -> Reduced:
    """Reduce moments once, by the fastest method."""
    h = len(moments.gram)
    few = moments.samples is not None and moments.samples < _FEW * h
    if few and h > _SMALL and moments.gram.is_cpu:
        return LowRank(moments.gram, moments.cross)
    return _by_size(moments.gram, moments.cross)


def _by_size(gram: Tensor, cross: Tensor) -> Reduced:
    # A GPU finds eigenvectors faster than it begins the many small steps along a band.
    return (Band if len(gram) > _SMALL and gram.is_cpu else Eigenbasis)(gram, cross)
