"""Nearest class mean: the logit of class i is −‖z − μ_i‖."""

import torch
from torch import Tensor, nn

from lastlayer.heads.answering import can_win
from lastlayer.heads.graph import Value
from lastlayer.heads.head import Preset
from lastlayer.heads.prototypes import (
    Prototypes,
    nearest_as_linear,
    nearest_graph,
    temperature_of_distances,
)
from lastlayer.heads.statistics.statistics_head import StatisticsHead


class MeanHead(StatisticsHead):
    """Nearest class mean (the paper's MeanLayer).

    Under "paper" a class without data keeps the zero vector, and can win.

    Args:
        preset: "exact" or "paper".
        half_life: samples of a class after which one counts half in its mean; None: never.

    >>> import torch
    >>> head = MeanHead(in_features=2)
    >>> head.observe(torch.tensor([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> head(torch.tensor([[4.0, 1.0]])).tolist()
    [[-4.0, -1.0]]
    """

    name = "mean"
    streams = True

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        preset: Preset = "exact",
        *,
        half_life: float | None = None,
    ) -> None:
        super().__init__(in_features, n_classes, preset, scatter="none", half_life=half_life)
        self._prototypes = Prototypes(self.statistics.mean)

    def _as_linear(self, dtype: torch.dtype | None) -> nn.Linear:
        """Return the layer whose largest logit z·p_i − ½‖p_i‖² is that of the nearest p_i."""
        return nearest_as_linear(self.statistics.mean, can_win(self), dtype)

    def _refresh(self) -> None:
        self._prototypes = Prototypes(self.statistics.mean)

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        return -logits.amax(dim=-1)

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        return nearest_graph(z, self.statistics.mean, can_win(self))

    def _own_temperature(self) -> float:
        if self.fades:
            return 1.0
        s = self.statistics
        return temperature_of_distances(float(s.spread.sum()), s.total, self.in_features)

    def _leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        left = self.statistics.count[y] - copies
        own = (z.to(self.statistics.mean) - self.statistics.mean[y]).norm(dim=1)
        own = own * (1 + copies / left.clamp(min=1).double())  # the mean moves away from the row
        alone = torch.linalg.vector_norm(z.to(own), dim=1)  # a class without rows is at zero
        return self._logits(z).scatter(1, y[:, None], -torch.where(left > 0, own, alone)[:, None])

    def _logits(self, z: Tensor) -> Tensor:
        return self._prototypes.logits(z)
