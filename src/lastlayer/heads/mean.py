"""Nearest class mean: the logit of class i is −‖z − μ_i‖."""

import torch
from torch import Tensor

from lastlayer.heads.head import Preset
from lastlayer.heads.statistics_head import StatisticsHead


class MeanHead(StatisticsHead):
    """Nearest class mean (the paper's MeanLayer).

    Under "paper" a class without data keeps the zero vector, and can win.

    >>> import torch
    >>> head = MeanHead(in_features=2)
    >>> head.observe(torch.tensor([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> head(torch.tensor([[4.0, 1.0]])).tolist()
    [[-4.0, -1.0]]
    """

    name = "mean"

    def __init__(self, in_features: int, n_classes: int = 0, preset: Preset = "exact") -> None:
        super().__init__(in_features, n_classes, preset, scatter="none")

    def _logits(self, z: Tensor) -> Tensor:
        return negative_distance(z, self.statistics.mean)


def negative_distance(z: Tensor, prototypes: Tensor) -> Tensor:
    """Give −‖z − p_i‖ (n, classes) by differences, exact for features far from zero too."""
    mode = "donot_use_mm_for_euclid_dist"
    return -torch.cdist(z.to(prototypes), prototypes, compute_mode=mode)
