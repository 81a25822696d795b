"""The penalty of ridge regression, chosen from second moments: likely, and cross-validated."""

import torch
from torch import Tensor

from lastlayer.heads.statistics.least_squares import Fits, Moments, Reduced

# Penalties tried, relative to the mean of the eigenvalues; steps of a quarter of a decade. A grid,
# so that statistics equal but for rounding choose the same one.
PENALTIES = torch.logspace(-8, 2, 41, dtype=torch.float64)
# The least share of the targets' spread that is taken for noise. Without it, data that can be
# fitted exactly (rows up to about the rank of the features, a copy among them) seem to have none,
# and then no penalty is small enough. Decision 15 says how it was chosen.
NOISE = 0.1
FREE = 0.3  # of the samples: the most freedom with which cross-validation is trusted
_TINY = 1e-300  # a spread of 0, of one class only, has a logarithm too


def choose_penalty(moments: Moments, reduced: Reduced, noise: float = NOISE) -> float:
    """Return the penalty of `PENALTIES` with the least cross-validated error, where that is safe.

    The most likely penalty is mostly right, but too large where classes have few rows. Generalised
    cross-validation is right there, and breaks down with the freedom of the fit: near as many
    samples, copies among them, its error falls to 0. So it chooses among the penalties that are no
    larger than the most likely one and leave the fit no more freedom than 0.3 of the samples.
    """
    fits = reduced.fits(PENALTIES.to(moments.gram) * moments.level)
    table = torch.stack([surprise(moments, fits, noise), validated(moments, fits), fits.freedom])
    surprises, errors, freedom = table.tolist()  # from a GPU at once
    likely = min(range(len(surprises)), key=surprises.__getitem__)
    safe = [k for k in range(likely) if freedom[k] <= FREE * moments.n]
    return float(fits.penalty[min([likely, *reversed(safe)], key=errors.__getitem__)])


def validated(moments: Moments, fits: Fits) -> Tensor:
    """Compute the error of generalised cross-validation, ‖(I − A)Y‖²/(1 − freedom/n)²."""
    # WᵀGW = WᵀQ − λWᵀW, so the residual needs no Gram matrix.
    residual = (moments.spread - fits.fitted - fits.penalty * fits.square).clamp(min=0)
    left = 1 - fits.freedom / moments.n
    return torch.where(left > 0, residual / left.square(), torch.inf)


def surprise(moments: Moments, fits: Fits, noise: float = NOISE) -> Tensor:
    """Compute −2 log of the likelihood of the targets under penalties, but for a constant.

    Weights are drawn from N(0, σ²/λ), targets from N(Wᵀz + b, σ²). With the weights and the
    intercept integrated out, a column of targets has −2 log likelihood

        E/σ² + (n − 1) log σ² + Σ log(1 + s_i/λ),   E = Σ‖y − p‖² − tr(QᵀW(λ)),

    s_i the eigenvalues of the Gram matrix; σ² is the most likely one, E/(n − 1), unless that is
    below the share `noise` of the spread. Columns share σ² and λ, so E is the sum over them.
    """
    # What cancels in E is far below the noise that it is divided by.
    error = (moments.spread - fits.fitted).clamp(min=0)
    residual = error.clamp(min=max(noise * moments.spread, _TINY))  # (n − 1) σ²
    return (moments.n - 1) * (error / residual + residual.log()) + fits.volume
