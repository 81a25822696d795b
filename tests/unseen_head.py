"""A head that the program has never seen: one class, and the card that makes it known."""

from typing import Self

import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import Abilities, HeadCard
from lastlayer.heads import Head
from lastlayer.heads.head import Preset


class MidrangeHead(Head):
    """Nearest midrange: the logit of class i is −‖z − (least_i + most_i)/2‖."""

    name = "midrange"
    passes = 1
    least: Tensor  # (n_classes, h) of each coordinate
    most: Tensor

    def __init__(self, in_features: int, n_classes: int = 0, preset: Preset = "exact") -> None:
        super().__init__(in_features, n_classes, preset)
        empty = torch.full((n_classes, in_features), torch.inf, dtype=torch.float64)
        self.register_buffer("least", empty)
        self.register_buffer("most", -empty)

    @property
    def abilities(self) -> Abilities:
        return Abilities(order_free=True, merges=True)

    def _learn(self, z: Tensor, y: Tensor) -> None:
        index, z = y[:, None].expand(z.shape), z.double()
        self.least = self.least.scatter_reduce(0, index, z, "amin")
        self.most = self.most.scatter_reduce(0, index, z, "amax")

    def _logits(self, z: Tensor) -> Tensor:
        middle = torch.where(self.seen[:, None], (self.least + self.most) / 2, 0)
        return -torch.cdist(z.double(), middle).masked_fill(~self.seen, torch.inf)

    def _grow(self, n_classes: int) -> None:
        more = self.least.new_full((n_classes - self.n_classes, self.in_features), torch.inf)
        self.least, self.most = torch.cat([self.least, more]), torch.cat([self.most, -more])
        super()._grow(n_classes)

    def _merge(self, other: Self) -> Self:
        merged = type(self)(n_classes=max(self.n_classes, other.n_classes), **self.settings)
        for part in (self, other):
            for rows in (part.least, part.most):
                merged.observe(rows[part.seen], part.seen.nonzero().flatten())
        return merged

    def _rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        own = slice(None) if columns is None else columns
        self.seen = self.seen[classes]
        self.least, self.most = (t[classes][:, own] for t in (self.least, self.most))


CARD = HeadCard(
    "midrange",
    home="unseen_head:MidrangeHead",
    family="statistics",
    source="made up for a test",
    formula="−‖z − (least_i + most_i)/2‖",
    use="where a test asks for it",
    state="two corners for each class, float64",
    size=lambda h, n_classes, n: 16 * n_classes * h,
    abilities=Abilities(order_free=True, merges=True),
)
