"""The covariance that all classes share, shrunk so that it can be inverted."""

from typing import Literal

import torch
from torch import Tensor

from lastlayer.core.blas import factor_in_place
from lastlayer.heads.statistics.class_statistics import ClassStatistics


def oas(covariance: Tensor, n_samples: float) -> float:
    """Return the oracle approximating shrinkage intensity of Chen et al. (2010), eq. 23.

    As scikit-learn's ``oas``: without the (1 − 2/p) terms, which are printed wrongly in the paper.
    """
    h = covariance.shape[0]
    mean_square = float(torch.linalg.vector_norm(covariance)) ** 2 / h**2
    level = float(covariance.trace()) / h
    denominator = (n_samples + 1) * (mean_square - level**2 / h)
    return 1.0 if denominator <= 0 else min((mean_square + level**2) / denominator, 1.0)


def intensity(
    covariance: Tensor, statistics: ClassStatistics, asked: float | Literal["oas"]
) -> float:
    """Return the intensity of shrinkage: the one asked for, or that of OAS."""
    return oas(covariance, statistics.total) if asked == "oas" else float(asked)


def shrink(
    covariance: Tensor, statistics: ClassStatistics, asked: float | Literal["oas"]
) -> Tensor:
    """Shrink a covariance (h, h) of these statistics towards (tr Σ/h)·I, in place."""
    level = float(covariance.trace()) / len(covariance)
    shrinkage = intensity(covariance, statistics, asked)
    if level <= statistics.rounding() ** 2:  # nothing varies: all directions are alike
        shrinkage, level = 1.0, 1.0
    covariance *= 1 - shrinkage
    covariance.diagonal().add_(shrinkage * level)
    return covariance


def shared_root(
    statistics: ClassStatistics, asked: float | Literal["oas"] = "oas"
) -> Tensor | None:
    """Return the Cholesky factor (h, h) of the shrunk covariance; None where it is singular."""

    def covariance() -> Tensor:
        return statistics.pooled_scatter().div_(statistics.total or 1.0)

    root = factor(shrink(covariance(), statistics, asked))
    if root is None:  # what is left of a direction after forgetting may be rounding
        cleaned = _without_rounding(covariance(), statistics.rounding() ** 2)
        root = factor(shrink(cleaned, statistics, asked))
    return root


def factor(covariance: Tensor) -> Tensor | None:
    """Turn a covariance into its Cholesky factor, in place: a wide one leaves no room for a second.

    None where a feature follows from others, but for rounding.
    """
    least = len(covariance) * torch.finfo(covariance.dtype).eps * covariance.diagonal()
    failed = factor_in_place(covariance)
    singular = (covariance.diagonal().square() <= least).any()
    return None if failed or bool(singular) else covariance


def whiten(root: Tensor, rows: Tensor) -> Tensor:
    """Bring rows (n, h) to coordinates in which root·rootᵀ is the identity."""
    white: Tensor = torch.linalg.solve_triangular(root, rows.mT, upper=False).mT
    return white


def _without_rounding(covariance: Tensor, least: float) -> Tensor:
    """Let nothing vary in the directions whose variance could be rounding."""
    values, directions = torch.linalg.eigh(covariance)
    varying = torch.where(values > least, values, 0)
    cleaned: Tensor = (directions * varying) @ directions.mT
    return cleaned
