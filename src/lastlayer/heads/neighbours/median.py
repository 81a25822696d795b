"""Nearest class median: the logit of class i is −‖z − med_i‖, the median taken per coordinate."""

import torch
from torch import Tensor, nn

from lastlayer.catalogue.head_cards import Abilities
from lastlayer.heads.answering import can_win
from lastlayer.heads.graph import Value
from lastlayer.heads.head import Preset
from lastlayer.heads.neighbours.stored_rows import StoringHead
from lastlayer.heads.prototypes import (
    Prototypes,
    nearest_as_linear,
    nearest_graph,
    temperature_of_distances,
)


class MedianHead(StoringHead):
    """Nearest class median (the paper's MedianLayer); it keeps all features it has observed.

    "exact" takes the midpoint of the two middle values of an even number, "paper" the lower one;
    under "paper" a class without data keeps the zero vector, and can win.

    >>> import torch
    >>> head = MedianHead(in_features=1)
    >>> head.observe(torch.tensor([[0.0], [1.0], [9.0], [20.0]]), torch.tensor([0, 0, 0, 1]))
    >>> head(torch.tensor([[2.0]])).tolist()
    [[-1.0, -18.0]]
    """

    name = "median"
    median: Tensor  # (n_classes, h), made anew where data arrived

    def __init__(self, in_features: int, n_classes: int = 0, preset: Preset = "exact") -> None:
        super().__init__(in_features, n_classes, preset)
        self._known = (0, 0)  # rows in the medians, and rewrites of the memory when they were made
        empty = torch.zeros(0, in_features, dtype=torch.float64)
        self.register_buffer("median", empty, persistent=False)
        self._prototypes = Prototypes(empty)

    @property
    def abilities(self) -> Abilities:
        """It keeps every row: whatever a set of rows allows."""
        return Abilities(
            linear=True, keeps_samples=True, order_free=True, merges=True, forgets=True,
            forgets_class=True, weighs=True,
        )  # fmt: skip

    def _as_linear(self, dtype: torch.dtype | None) -> nn.Linear:
        """Return the layer whose largest logit z·p_i − ½‖p_i‖² is that of the nearest p_i."""
        return nearest_as_linear(self.median, can_win(self), dtype)

    def _refresh(self) -> None:
        rows, rewrites = self._known
        start = rows if rewrites == self.memory.rewrites else 0
        median = self.median.new_zeros(self.n_classes, self.in_features)
        if start:
            median[: self.median.shape[0]] = self.median
        for c in self.memory.y[start:].unique().tolist():
            median[c] = self._middle(self.memory.z[self.memory.y == c])
        self.median, self._known = median, (len(self.memory), self.memory.rewrites)
        self._prototypes = Prototypes(median)

    def _middle(self, rows: Tensor) -> Tensor:
        rows = rows.double()
        lower = rows.median(dim=0).values
        return lower if self.preset == "paper" else (lower - (-rows).median(dim=0).values) / 2

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        return -logits.amax(dim=-1)

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        return nearest_graph(z, self.median, can_win(self))

    def _own_temperature(self) -> float:
        if "spread" not in self._derived:
            step = max((1 << 20) // self.in_features, 1)
            parts = zip(self.memory.z.split(step), self.memory.y.split(step), strict=True)
            squared = ((z.double() - self.median[y]).square_().sum() for z, y in parts)
            self._derived["spread"] = float(sum(squared))
        return temperature_of_distances(self._derived["spread"], len(self.memory), self.in_features)

    def _logits(self, z: Tensor) -> Tensor:
        return self._prototypes.logits(z)
