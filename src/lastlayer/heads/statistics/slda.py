"""Streaming linear discriminant analysis: class means and one shared covariance.

Its novelty is that of all heads with class statistics: ``statistics_head``.
"""

from typing import Literal

import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import Abilities
from lastlayer.core.checks import choice, flag, short
from lastlayer.errors import DataError, OptionError
from lastlayer.heads.head import Preset
from lastlayer.heads.statistics.class_statistics import Scatter
from lastlayer.heads.statistics.covariance import factor, shared_root
from lastlayer.heads.statistics.statistics_head import SOLUTION, StatisticsHead
from lastlayer.heads.statistics.without_a_row import SharedWithout, log_shares

PAPER_SHRINKAGE = 1e-4


class SldaHead(StatisticsHead):
    """Linear discriminant analysis that learns from a stream (the paper's SLDA).

    logit_i = z·Λμ_i − ½ μ_iᵀΛμ_i (+ log prior), Λ the inverse of the shrunk covariance. "exact"
    uses the pooled within-class covariance Σ, shrunk towards (tr Σ/h)·I, and measures features
    from their overall mean, which changes a sample's logits by the same number for every class.
    "paper" uses the running Σ of the paper's code, shrunk by 1e-4 towards I; it depends on the
    order of the data, so such a head cannot be merged and cannot forget.

    Args:
        preset: "exact" or "paper".
        shrinkage: "oas" (Chen's oracle approximating shrinkage) or a number in [0, 1].
        prior: "uniform" (every class weighs the same) or "empirical" (its share of the samples).
        per_class_scatter: keep n_classes · h² · 8 bytes more, so that ``forget_class`` is exact.
        half_life: samples after which what was learned counts half; None: it never fades.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> head = SldaHead(in_features=64)
    >>> head.observe(data.train.z, data.train.y)
    >>> round(100 * (head.predict(data.test.z) == data.test.y).double().mean().item(), 1)
    66.9
    """

    name = "slda"
    streams = True
    solution = SOLUTION

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        preset: Preset = "exact",
        *,
        shrinkage: float | Literal["oas"] = "oas",
        prior: Literal["uniform", "empirical"] = "uniform",
        per_class_scatter: bool = False,
        half_life: float | None = None,
    ) -> None:
        if not (isinstance(shrinkage, str) and shrinkage == "oas") and not (
            isinstance(shrinkage, int | float) and 0 <= shrinkage <= 1
        ):
            raise OptionError(
                f"shrinkage must be 'oas' or a number in [0, 1], got {short(shrinkage)}"
            )
        choice(prior, ("uniform", "empirical"), "prior")
        choice(preset, ("exact", "paper"), "preset")
        flag(per_class_scatter, "per_class_scatter")
        options = {"shrinkage": shrinkage, "prior": prior, "per_class_scatter": per_class_scatter}
        if preset == "paper" and (options != _DEFAULTS or half_life is not None):
            raise OptionError(
                "preset 'paper' fixes shrinkage, prior and scatter: use preset 'exact' to set them"
            )
        scatter: Scatter = "per_class" if per_class_scatter else "pooled"
        if preset == "paper":
            scatter = "running"
        super().__init__(in_features, n_classes, preset, scatter, half_life=half_life, **options)
        self._register()

    @property
    def abilities(self) -> Abilities:
        """Statistics add up, but the paper's running covariance depends on the order."""
        return super().abilities if self.preset == "exact" else Abilities(linear=True)

    def _why_not(self, ability: str) -> str:
        if self.preset == "paper":
            return "its covariance depends on the order of the data; preset 'exact' can"
        return super()._why_not(ability)

    def _refresh(self) -> None:
        s = self.statistics
        exact = self.preset == "exact"
        self.centre = s.overall_mean() if exact else torch.zeros_like(s.mean[0])
        mean = s.mean - self.centre
        root = self._shared_root()
        self.weight = torch.cholesky_solve(mean.mT, root).mT
        self.bias = -0.5 * (mean * self.weight).sum(dim=1)
        if self.options["prior"] == "empirical":
            self.bias = self.bias + (s.count / s.total).log()

    def _make_root(self) -> Tensor:
        s = self.statistics
        if self.preset == "exact":
            root = shared_root(s, self.options["shrinkage"])
        else:
            root = factor(_shrink_to_identity(s.pooled_scatter() / (s.total or 1.0)))
        if root is None:
            raise DataError(
                f"the covariance must be invertible, got a singular one of {s.total:g} "
                f"samples with {self.in_features} features: make the head with a larger shrinkage"
                + ("" if self.options["shrinkage"] == "oas" else ", or with 'oas'")
            )
        return root

    def _leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        found: SharedWithout | None = self._derived.get("without")
        if found is None:
            found = SharedWithout(self.statistics, self.options["shrinkage"])
            self._derived["without"] = found
        logits = found.logits(z, y, copies)
        if self.options["prior"] == "empirical":
            logits = logits + log_shares(self.statistics.count, y, copies)
        return logits


_DEFAULTS = {"shrinkage": "oas", "prior": "uniform", "per_class_scatter": False}


def _shrink_to_identity(covariance: Tensor) -> Tensor:
    identity = torch.eye(covariance.shape[0], dtype=covariance.dtype, device=covariance.device)
    return covariance * (1 - PAPER_SHRINKAGE) + identity * PAPER_SHRINKAGE
