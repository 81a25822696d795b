"""Discriminant analysis without one row: what is left is a matrix less one direction.

A row z of class c, learned m times of n_c, pulls its class's mean towards itself and adds α·ddᵀ to
the scatter, d = z − μ_c and α = m n_c/(n_c − m). So without it a covariance that is shrunk towards
a multiple of I is D + δ·I − κ·ddᵀ in the basis in which D, which all rows share, is diagonal; δ
follows the row, since the trace does. One eigendecomposition then serves every row.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lastlayer.core.packed import symmetric
from lastlayer.heads.leave_one_out import check_leverage
from lastlayer.heads.statistics.class_statistics import ClassStatistics
from lastlayer.heads.statistics.covariance import intensity
from lastlayer.heads.statistics.gaussians import diagonal_intensity

AT_ONCE = 1 << 16  # features: what rows are worked on in stays in a core's cache


class Row(NamedTuple):
    """What rows (n, h) that are left out take with them."""

    z: Tensor  # (n, h) measured from the overall mean
    y: Tensor  # (n,)
    d: Tensor  # (n, h) from the mean of their class
    alpha: Tensor  # (n,) of the direction that their class's scatter loses
    pull: Tensor  # (n,) the mean of the class is this many times d further from the row
    left: Tensor  # (n,) how many rows stay


def rows_of(s: Any, z: Tensor, y: Tensor, copies: Tensor) -> Row:
    """Return rows to leave out of these statistics."""
    alone = (s.count[y] == copies)[:, None]
    count, copies = s.count[y].double(), copies.double()
    others = (count - copies).clamp(min=1)
    z = z.to(s.mean)
    d = torch.where(alone, 0, z - s.mean[y])
    alpha = torch.where(alone[:, 0], 0, copies * count / others)
    return Row(z - mean_of_all(s), y, d, alpha, count / others, s.total - copies)


def mean_of_all(s: Any) -> Tensor:
    """Return the mean (h,) of all rows."""
    mean: Tensor = (s.count.to(s.mean) / s.total) @ s.mean
    return mean


def log_shares(count: Tensor, y: Tensor, copies: Tensor) -> Tensor:
    """Return the log of the share (n, n_classes) of each class in the rows that stay."""
    left = count.double().repeat(len(y), 1).scatter_add_(1, y[:, None], -copies[:, None].double())
    return (left / left.sum(dim=1, keepdim=True)).log()


class Shrunk:
    """The shared covariance without a row, (1 − s)/n' (S − α ddᵀ) + δ·I."""

    def __init__(self, s: ClassStatistics, asked: float | Literal["oas"]) -> None:
        self.scatter, self.h = s.pooled_scatter(), s.mean.shape[1]
        self.trace = self.scatter.trace()
        self.intensity = intensity(self.scatter / s.total, s, asked)
        self.flat = s.rounding() ** 2  # a variance that is no more than this counts as none

    def delta(self, row: Row, d: Tensor) -> Tensor:
        """Return δ (n,); where nothing varies any more, the covariance is I."""
        trace = (self.trace - row.alpha * d.square().sum(dim=1)).clamp(min=0)
        level = trace / (self.h * row.left)
        return torch.where(level <= self.flat, 1.0, self.intensity * level)


class SharedWithout:
    """Logits by the covariance that all classes share, pooled and shrunk, each row left out."""

    def __init__(self, s: ClassStatistics, asked: float | Literal["oas"]) -> None:
        self.s, self.shrunk = s, Shrunk(s, asked)
        self.values, self.vectors = torch.linalg.eigh(self.shrunk.scatter)
        self.means = (s.mean - mean_of_all(s)) @ self.vectors

    def logits(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        """Return them (n, n_classes), as a head refitted without the row would."""
        parts = zip(*(t.split(max(AT_ONCE // z.shape[1], 1)) for t in (z, y, copies)), strict=True)
        return torch.cat([self._logits(*part) for part in parts])

    def _logits(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        row = rows_of(self.s, z, y, copies)
        z = row.z @ self.vectors
        d = torch.where((row.alpha > 0)[:, None], z - self.means[y], 0)
        shape = (1 - self.shrunk.intensity) / row.left
        weight = 1 / (
            shape[:, None] * self.values.clamp(min=0) + self.shrunk.delta(row, d)[:, None]
        )
        kappa = shape * row.alpha
        of_row, of_d = z * weight, d * weight
        zz, dz, dd = (of_row * z).sum(1), (of_d * z).sum(1), (of_d * d).sum(1)
        left = 1 - kappa * dd
        check_leverage(left)
        more = kappa / left
        # Squared distances from the means of classes, and from the mean of all that stay.
        squared = zz[:, None] - 2 * of_row @ self.means.mT + weight @ self.means.square().mT
        squared += more[:, None] * (dz[:, None] - of_d @ self.means.mT).square()
        squared.scatter_(1, y[:, None], (row.pull.square() * dd / left)[:, None])
        away = (self.s.total / row.left).square() * (zz + more * dz.square())
        logits: Tensor = (away[:, None] - squared) / 2
        return logits


class EachWithout:
    """Logits by a covariance of each class, drawn towards the shared one, each row left out."""

    def __init__(self) -> None:
        self.times = 0  # how often the rows were learned that all else is for
        self.classes: dict[int, tuple[Tensor, Tensor]] = {}

    def logits(self, s: ClassStatistics, nu: float, z: Tensor, y: Tensor, times: int) -> Tensor:
        """Return the logits (n, n_classes) of rows that were all learned that many times."""
        row, shrunk = rows_of(s, z, y, torch.full_like(y, times)), Shrunk(s, "oas")
        shape = nu * (1 - shrunk.intensity) / (s.total - times)
        if self.times != times:
            known = (s.count > 0).nonzero().flatten().tolist()
            shared = shape * shrunk.scatter
            self.classes = {c: _eigh(symmetric(s.scatter[c]) + shared) for c in known}
            self.times = times
        delta = nu * shrunk.delta(row, row.d)
        logits = s.mean.new_full((len(z), s.mean.shape[0]), -torch.inf)
        for c, (values, vectors) in self.classes.items():
            own = row.y == c
            samples = s.count[c].double() - own * times + nu
            u = z.to(s.mean) - s.mean[c] + torch.where(own, row.pull - 1, 0)[:, None] * row.d
            kappa = row.alpha * (own.double() + shape)
            squared, volume = _form((values + delta[:, None]), kappa, u @ vectors, row.d @ vectors)
            logits[:, c] = -(samples * squared + volume - shrunk.h * samples.log()) / 2
        return logits


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp(min=0), vectors


def _form(diagonal: Tensor, kappa: Tensor, u: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Return uᵀM⁻¹u (n,) and log|M| (n,) of M = D − κ ddᵀ, D diagonal (n, h)."""
    of_d = d / diagonal
    left = 1 - kappa * (of_d * d).sum(dim=1)
    check_leverage(left)
    across = (of_d * u).sum(dim=1)
    squared = (u.square() / diagonal).sum(dim=1) + kappa * across.square() / left
    return squared, diagonal.log().sum(dim=1) + left.log()


def diagonal_without(s: Any, nu: float, z: Tensor, y: Tensor, times: int) -> Tensor:
    """Return the logits (n, n_classes) by variances of each class, each row left out."""
    row = rows_of(s, z, y, torch.full_like(y, times))
    lost = row.alpha[:, None] * row.d.square()
    variance = (s.scatter.sum(dim=0) - lost).clamp(min=0) / (s.total - times)
    level = variance.mean(dim=1, keepdim=True)
    few = diagonal_intensity(s.total)  # of the whole: the intensity of shrinkage stays
    shared = torch.where(level <= s.rounding() ** 2, 1.0, variance * (1 - few) + level * few)
    logits: Tensor = s.mean.new_full((len(z), s.mean.shape[0]), -torch.inf)
    for c in (s.count > 0).nonzero().flatten().tolist():
        own = (row.y == c)[:, None]
        samples = s.count[c].double() - own[:, 0] * times + nu
        scatter = (s.scatter[c] - torch.where(own, lost, 0)).clamp(min=0)
        covariance = (scatter + nu * shared) / samples[:, None]
        u = z.to(s.mean) - s.mean[c] + torch.where(own, (row.pull - 1)[:, None], 0) * row.d
        logits[:, c] = -(u.square() / covariance + covariance.log()).sum(dim=1) / 2
    return logits
