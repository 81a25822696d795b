"""Ridge regression from second moments alone, its penalty too: likely, and cross-validated."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import lapack
from torch import Tensor

from lastlayer.core.blas import eigenvalues, tridiagonal
from lastlayer.core.threads import blas_threads
from lastlayer.heads.statistics.covariance import factor

# Penalties tried, relative to the mean of the eigenvalues; steps of a quarter of a decade. A grid,
# so that statistics equal but for rounding choose the same one.
PENALTIES = torch.logspace(-8, 2, 41, dtype=torch.float64)
# The least share of the targets' spread that is taken for noise. Without it, data that can be
# fitted exactly (rows up to about the rank of the features, a copy among them) seem to have none,
# and then no penalty is small enough. Decision 15 says how it was chosen.
NOISE = 0.1
FREE = 0.3  # of the samples: the most freedom with which cross-validation is trusted
_SMALL = 32  # features up to which eigenvectors cost nothing
_TINY = 1e-300  # a spread of 0, of one class only, has a logarithm too
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


def choose_penalty(moments: Moments, reduced: Reduced, noise: float = NOISE) -> float:
    """Return the penalty of `PENALTIES` with the least cross-validated error, where that is safe.

    The most likely penalty is mostly right, but too large where classes have few rows. Generalised
    cross-validation is right there, and breaks down with the freedom of the fit: near as many
    samples, copies among them, its error falls to 0. So it chooses among the penalties that are no
    larger than the most likely one and leave the fit no more freedom than 0.3 of the samples.
    """
    penalties: list[float] = (PENALTIES * moments.level).tolist()
    likely = min(penalties, key=lambda penalty: surprise(moments, reduced, penalty, noise))
    safe = [
        penalty
        for penalty in penalties[: penalties.index(likely)]
        if freedom(reduced, penalty) <= FREE * moments.n
    ]
    return min([likely, *reversed(safe)], key=lambda penalty: validated(moments, reduced, penalty))


def freedom(reduced: Reduced, penalty: float) -> float:
    """Return how many numbers the fit may choose for each column of targets: tr A + 1."""
    return 1 + float((reduced.values / (reduced.values + penalty)).sum())


def validated(moments: Moments, reduced: Reduced, penalty: float) -> float:
    """Compute the error of generalised cross-validation, ‖(I − A)Y‖²/(1 − freedom/n)²."""
    solution = reduced.solve(penalty)
    # WᵀGW = WᵀQ − λWᵀW, so the residual needs no Gram matrix.
    fitted = float((solution * reduced.cross).sum())
    residual = moments.spread - fitted - penalty * float(solution.square().sum())
    left = 1 - freedom(reduced, penalty) / moments.n
    return max(residual, 0.0) / left**2 if left > 0 else math.inf


def surprise(moments: Moments, reduced: Reduced, penalty: float, noise: float = NOISE) -> float:
    """Compute −2 log of the likelihood of the targets under a penalty, but for a constant.

    Weights are drawn from N(0, σ²/λ), targets from N(Wᵀz + b, σ²). With the weights and the
    intercept integrated out, a column of targets has −2 log likelihood

        E/σ² + (n − 1) log σ² + Σ log(1 + s_i/λ),   E = Σ‖y − p‖² − tr(QᵀW(λ)),

    s_i the eigenvalues of the Gram matrix; σ² is the most likely one, E/(n − 1), unless that is
    below the share `noise` of the spread. Columns share σ² and λ, so E is the sum over them.
    """
    # What cancels in E is far below the noise that it is divided by.
    error = max(moments.spread - float((reduced.solve(penalty) * reduced.cross).sum()), 0.0)
    residual = max(error, noise * moments.spread, _TINY)  # (n − 1) σ²
    volume = float((reduced.values / penalty).log1p().sum())
    return (moments.n - 1) * (error / residual + math.log(residual)) + volume


def ridge(moments: Moments, penalty: float | None) -> tuple[Tensor, float]:
    """Solve (G + λI) W = Q; return W (h, n_classes) and λ.

    The penalty is relative to the mean eigenvalue of G; None: that of ``choose_penalty``.
    """
    if penalty is None:
        reduced = reduce(moments)
        found = choose_penalty(moments, reduced)
        return reduced.back(reduced.solve(found)), found
    found = penalty * moments.level
    shifted = moments.gram.clone()
    shifted.diagonal().add_(found)
    root = factor(shifted)
    if root is None:
        raise np.linalg.LinAlgError("singular")
    return torch.cholesky_solve(moments.cross, root), found
