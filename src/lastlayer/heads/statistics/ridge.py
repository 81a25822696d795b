"""Ridge regression on one-hot targets, read from class statistics."""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import Abilities
from lastlayer.core.checks import choice, flag, short
from lastlayer.core.packed import symmetric
from lastlayer.errors import DataError, OptionError
from lastlayer.heads.leave_one_out import check_leverage
from lastlayer.heads.statistics.class_statistics import Scatter
from lastlayer.heads.statistics.covariance import factor, whiten
from lastlayer.heads.statistics.least_squares import Moments, reduce
from lastlayer.heads.statistics.moments import TINY
from lastlayer.heads.statistics.penalty import choose_penalty
from lastlayer.heads.statistics.statistics_head import SOLUTION, StatisticsHead

Weigh = Literal["samples", "classes"]
Penalty = float | Literal["auto", "gcv"]


class RidgeHead(StatisticsHead):
    """Least squares on one-hot targets with an intercept, from counts, means and one scatter.

    With S the within-class scatter and μ̄ the overall mean: G = S + Σ n_c (μ_c − μ̄)(μ_c − μ̄)ᵀ,
    and w_c = (G + λ·tr(G)/h·I)⁻¹ n_c (μ_c − μ̄), intercept n_c/n − w_cᵀμ̄. Where nothing varies
    every w_c is zero, and the largest class wins. It is not the paper's, and has no presets.

    Args:
        penalty: λ, relative to tr(G)/h, or "auto": the one under which the targets are most
            likely, or a smaller one that is cross-validated (decision 15; "gcv", its name in 0.2,
            means the same).
        weigh: "samples" (each weighs the same) or "classes" (each class does). From one scatter
            for all classes the latter assumes that their covariances are equal.
        per_class_scatter: keep n_classes · h² · 8 bytes more, so that ``forget_class`` and
            ``weigh="classes"`` are exact.
        half_life: samples after which what was learned counts half; None: it never fades.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> head = RidgeHead(in_features=64)
    >>> head.observe(data.train.z, data.train.y)
    >>> round(100 * (head.predict(data.test.z) == data.test.y).double().mean().item(), 1)
    65.4
    """

    name = "ridge"
    solution = (*SOLUTION, "used")
    used: Tensor  # () λ·tr(G)/h

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        *,
        penalty: Penalty = "auto",
        weigh: Weigh = "samples",
        per_class_scatter: bool = False,
        half_life: float | None = None,
    ) -> None:
        penalty = check_penalty(penalty)
        choice(weigh, ("samples", "classes"), "weigh")
        flag(per_class_scatter, "per_class_scatter")
        options = {"penalty": penalty, "weigh": weigh, "per_class_scatter": per_class_scatter}
        scatter: Scatter = "per_class" if per_class_scatter else "pooled"
        super().__init__(in_features, n_classes, None, scatter, half_life=half_life, **options)
        self._register()

    @property
    def abilities(self) -> Abilities:
        """A row that weighs as its class does weighs otherwise when another is left out."""
        by_sample = self.options["weigh"] == "samples"
        able = super().abilities
        return able if by_sample else replace(able, leaves_out=False)

    def _why_not(self, ability: str) -> str:
        by_class = self.options["weigh"] == "classes"
        if ability == "leaves_out" and by_class and not self.fades:
            return "its classes weigh the same, however many rows they have; weigh='samples' can"
        return super()._why_not(ability)

    @property
    def penalty(self) -> float:
        """λ·tr(G)/h as last used."""
        return float(self.used)

    def _refresh(self) -> None:
        by_class = self.options["weigh"] == "classes"
        self.centre, share, moments = self._by_class() if by_class else self._by_sample()
        if self._is_flat(moments):
            self.weight = moments.cross.mT.clone().zero_()
            self.bias, self.used = share, share.new_zeros(())
            return
        asked = self.options["penalty"]
        try:
            w, used = solve(moments, None if asked == "auto" else float(asked))
        except np.linalg.LinAlgError:
            raise DataError(
                f"the Gram matrix must be invertible, got a singular one of "
                f"{self.statistics.total:g} samples with {self.in_features} features: make the "
                "head with a larger penalty, or with 'auto'"
            ) from None
        self.weight, self.bias = w.mT.contiguous(), share
        self.used = share.new_tensor(used)

    def _is_flat(self, moments: Moments) -> bool:
        """Return whether nothing varies."""
        return moments.level <= self.statistics.rounding() ** 2 * moments.n

    def _by_sample(self) -> tuple[Tensor, Tensor, Moments]:
        s = self.statistics
        n, count = s.total, s.count
        centre, mean = s.overall_mean(), s.mean
        apart = torch.where((count > 0)[:, None], mean - centre, 0)
        cross = (apart * count[:, None]).mT
        gram = s.pooled_scatter()
        gram += cross @ apart  # in place: of a wide map, each such matrix is large
        share = count / n
        spread = n * (1 - float(share.square().sum()))
        return centre, share, Moments(gram, cross, spread, n, self._samples())

    def _by_class(self) -> tuple[Tensor, Tensor, Moments]:
        """As if every class had as many samples; n is then the size that weighs as much."""
        s = self.statistics
        count = s.count
        known = count > 0
        n_classes = int(known.sum())
        share = known.to(torch.float64) / n_classes
        centre = share @ s.mean
        apart = torch.where(known[:, None], s.mean - centre, 0)
        n = n_classes**2 / float(count[known].reciprocal().sum())
        each = n / n_classes  # samples of a class
        if s.kind == "per_class":
            within = torch.einsum("c,chk->hk", each / count.clamp(min=TINY), s.scatter)
            within = symmetric(within)
        else:
            within = s.pooled_scatter() * (n / s.total)
        cross = apart.mT * each
        gram = within.add_(cross @ apart)
        return centre, share, Moments(gram, cross, n * (1 - 1 / n_classes), n, self._samples())

    def _leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        """Return (ŷ − m h y)/(1 − m h), h the leverage of a row and m how often it was learned."""
        estimate = self._logits(z)
        pull = copies * (1 / self.statistics.total + self._leverage(z.to(estimate) - self.centre))
        check_leverage(1 - pull)
        target = torch.zeros_like(estimate).scatter_(1, y[:, None], pull[:, None])
        return (estimate - target) / (1 - pull)[:, None]

    def _leverage(self, z: Tensor) -> Tensor:
        """Return zᵀ(G + λI)⁻¹z of centred rows; 0 where nothing varies, and no weight is used."""
        root: Tensor | None = self._derived.get("gram")
        if root is None:
            moments = self._by_sample()[2]
            root = torch.linalg.cholesky(moments.gram + self.penalty * torch.eye(len(z.mT)).to(z))
            self._derived["gram"] = root = root[:0] if self._is_flat(moments) else root
        return whiten(root, z).square().sum(dim=1) if len(root) else z.new_zeros(len(z))

    def _own_temperature(self) -> float:
        """As steep as discriminant analysis, whose logits of k equal classes are about k times so.

        With them as they are, estimates of probabilities from 0 to 1, all classes would seem alike.
        """
        return 1 / int(self.seen.sum())

    def _samples(self) -> int | None:
        """Return how many samples there are, where their weights do not hide it."""
        return None if self.fades or self.statistics.weighted else int(self.statistics.total)


def check_penalty(penalty: object) -> Penalty:
    """Return a penalty as it is kept; refuse anything else."""
    if isinstance(penalty, int | float) and 0 <= penalty < float("inf"):
        return penalty
    # Head files of 0.2 say "gcv", the rule that they were made with, and learn on with ours.
    if isinstance(penalty, str) and penalty in ("auto", "gcv"):
        return "auto"
    raise OptionError(f"penalty must be 'auto', or at least 0, got {short(penalty)}")


def solve(moments: Moments, penalty: float | None) -> tuple[Tensor, float]:
    """Solve (G + λI) W = Q; return W (h, n_classes) and λ.

    The penalty is relative to the mean eigenvalue of G; None: that of ``choose_penalty``.
    """
    if penalty is None:
        reduced = reduce(moments)
        found = choose_penalty(moments, reduced)
        return reduced.solve(found), found
    found = penalty * moments.level
    shifted = moments.gram.clone()
    shifted.diagonal().add_(found)
    root = factor(shifted)
    if root is None:
        raise np.linalg.LinAlgError("singular")
    return torch.cholesky_solve(moments.cross, root), found
