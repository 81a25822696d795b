"""The penalty of ridge regression, chosen from second moments: likely, and cross-validated."""

import math

import torch

from lastlayer.heads.statistics.least_squares import Moments, Reduced

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
