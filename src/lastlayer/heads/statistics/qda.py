"""Quadratic discriminant analysis: each class its own mean and its own covariance."""

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import Abilities
from lastlayer.core.checks import choice, flag
from lastlayer.heads.graph import Value, masked
from lastlayer.heads.statistics.covariance import whiten
from lastlayer.heads.statistics.gaussians import GaussianHead
from lastlayer.heads.statistics.statistics_head import BUDGET
from lastlayer.heads.statistics.without_a_row import EachWithout, diagonal_without, log_shares

_COLUMNS = 1024  # of one product in a graph: classes · h


class QdaHead(GaussianHead):
    """Quadratic discriminant analysis that learns from a stream.

    logit_c = −½ (z − μ_c)ᵀΣ_c⁻¹(z − μ_c) − ½ log|Σ_c| (+ log prior), Σ_c = (S_c + ν Σ)/(n_c + ν)
    with Σ the covariance that all classes share, shrunk by OAS. One Cholesky factor for each class,
    made at the first question after a change. It is not the paper's, and has no presets.

    Args:
        nu: how many samples the shared covariance counts for in each class; None: 2 h.
        prior: "uniform" or "empirical".
        diagonal: keep and use variances only, h numbers for each class in place of h².
        budget: bytes that its statistics may take; answering takes about as much again.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> head = QdaHead(in_features=64)
    >>> head.observe(data.train.z, data.train.y)
    >>> round(100 * (head.predict(data.test.z) == data.test.y).double().mean().item(), 1)
    69.2
    """

    name = "qda"
    smaller = "keep only variances with diagonal=True"

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        *,
        nu: float | None = None,
        prior: Literal["uniform", "empirical"] = "uniform",
        diagonal: bool = False,
        budget: int = BUDGET,
    ) -> None:
        choice(prior, ("uniform", "empirical"), "prior")
        flag(diagonal, "diagonal")
        options = {"prior": prior, "diagonal": diagonal}
        super().__init__(in_features, n_classes, nu=nu, budget=budget, **options)
        self._factors: dict[int, Tensor] = {}

    @property
    def abilities(self) -> Abilities:
        """Every class has a scatter of its own; answers are no linear layer's."""
        return replace(super().abilities, linear=False, forgets_class=True)

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        """Return the least Mahalanobis distance to a class, each by its own covariance."""
        known = list(self._factors)
        logits = logits[:, known] - self._offsets()[known]
        return (-2 * logits).amin(dim=1).clamp(min=0).sqrt()

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        s, known = self.statistics, self.seen
        offsets = torch.where(known, self._offsets(), 0)
        centre = s.mean[known].mean(dim=0)
        d, apart = z - centre, torch.where(known[:, None], s.mean - centre, 0)
        squared = self._diagonal_graph(d, apart) if self.diagonal else self._full_graph(d, apart)
        logits = masked(squared * -0.5 + offsets, known)
        return logits, masked(-squared, known).reduce("Max").unary("Neg").unary("Sqrt")

    def _full_graph(self, d: Value, apart: Tensor) -> Value:
        """Write down the squared distances (n, n_classes), a few classes at a time."""
        h, n_classes = self.in_features, self.n_classes
        identity = torch.eye(h, dtype=apart.dtype, device=apart.device)
        parts = []
        for some in torch.arange(n_classes).split(max(_COLUMNS // h, 1)):
            roots = [whiten(self._factors[c], identity) if c in self._factors else 0 * identity
                     for c in some.tolist()]  # fmt: skip
            offset = torch.cat([apart[c] @ root for c, root in zip(some, roots, strict=True)])
            add_up = torch.eye(len(some), dtype=apart.dtype, device=apart.device)
            white = d @ torch.cat(roots, dim=1) - offset
            parts.append(white.square() @ add_up.repeat_interleave(h, dim=0))
        return parts[0] if len(parts) == 1 else d.graph.add("Concat", *parts, axis=1)

    def _diagonal_graph(self, d: Value, apart: Tensor) -> Value:
        zero = torch.zeros_like(apart[0])
        weight = torch.stack(
            [self._factors[c] ** -2 if c in self._factors else zero for c in range(len(apart))]
        )
        own = (apart.square() * weight).sum(dim=1)
        return (d.square() @ weight.mT + d @ (-2 * weight * apart).mT + own).at_least(0.0)

    def _offsets(self) -> Tensor:
        """Return what logits (n_classes,) have beside their distances: volume and prior."""
        s = self.statistics
        offset = s.mean.new_full((self.n_classes,), -math.inf)
        for c, factor in self._factors.items():
            deviations = factor if self.diagonal else factor.diagonal()
            offset[c] = -deviations.log().sum()
        if self.options["prior"] == "empirical":
            offset = offset + (s.count / s.total).log()
        return offset

    def _refresh(self) -> None:
        shared = self._shared()
        known = self.seen.nonzero().flatten().tolist()
        self._factors = {c: self._factor(c, shared) for c in known}

    def _leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        each = self._derived.setdefault("without", EachWithout())
        without = diagonal_without if self.diagonal else each.logits
        logits = torch.empty(len(z), self.n_classes, dtype=torch.float64, device=z.device)
        for times in copies.unique().tolist():
            rows = (copies == times).nonzero().flatten()
            logits[rows] = without(self.statistics, self.nu, z[rows], y[rows], times)
        if self.options["prior"] == "empirical":
            logits = logits + log_shares(self.statistics.count, y, copies)
        return logits

    def _logits(self, z: Tensor) -> Tensor:
        s = self.statistics
        logits = s.mean.new_full((len(z), self.n_classes), -math.inf)
        offsets = self._offsets()
        for c, factor in self._factors.items():
            d = z.to(factor) - s.mean[c]
            white = d / factor if self.diagonal else whiten(factor, d)
            logits[:, c] = -0.5 * white.square().sum(dim=1) + offsets[c]
        return logits
