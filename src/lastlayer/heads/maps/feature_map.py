"""Random feature maps: z (n, h) → φ (n, width), drawn from a seed and scaled to the first rows."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import whole
from lastlayer.core.names import look_up
from lastlayer.errors import DataError, ShapeError
from lastlayer.heads.graph import Value
from lastlayer.heads.shared_module import Precise

ROWS = 1000  # rows that fix what depends on the data


class FeatureMap(Precise, ABC):
    """A map of features that is the same for a whole stream; it computes in float64.

    The projection is drawn from the seed alone, and saved with the head: no other machine or
    version need draw the same numbers. The scale of the features is measured once, by ``fit``;
    until then ``centre`` and ``scale`` are empty.

    Args:
        in_features: the size h of a feature vector.
        width: the size of a mapped one.
        seed: of the projection.
    """

    name: ClassVar[str]
    projection: Tensor  # (width, h) standard normal
    centre: Tensor  # (h,) what features are measured from; (0,) until fitted
    scale: Tensor  # (h,) or (1,) what they are divided by; (0,) until fitted

    def __init__(self, in_features: int, width: int, seed: int = 0) -> None:
        super().__init__()
        width, in_features = whole(width, "a width", least=1), whole(in_features, "in_features", 1)
        self.seed = seed = whole(seed, "a seed", least=0)
        random = np.random.Generator(np.random.PCG64(seed))
        drawn = random.standard_normal((width, in_features))
        self.register_buffer("projection", torch.from_numpy(drawn))
        self._draw(random)
        for name in ("centre", "scale"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))

    @property
    def width(self) -> int:
        """The size of a mapped feature vector."""
        return self.projection.shape[0]

    @property
    def in_features(self) -> int:
        """The size of a feature vector."""
        return self.projection.shape[1]

    @property
    def fitted(self) -> bool:
        """Whether the scale of the features has been measured."""
        return self.centre.numel() > 0

    def fit(self, rows: Tensor, *, provisional: bool = False) -> Self:
        """Measure the scale of the features on some rows (n, h), once and for good.

        Rows that are all the same have none: they are refused, unless it is provisional; then
        features are left as large as they are.
        """
        rows = rows.detach().to(self.projection.device, torch.float64)
        if not provisional and bool((rows == rows[:1]).all()):
            raise DataError(
                f"the first rows must differ to scale the map to them, got {len(rows)} that are "
                "all the same: begin with other rows, or pass another head's map with like="
            )
        self.centre, self.scale = self._measure(rows)
        return self

    def forward(self, z: Tensor) -> Tensor:
        """Map features (n, h) to (n, width)."""
        if z.dim() != 2 or z.shape[1] != self.in_features:
            raise ShapeError(
                f"features must have shape (n, {self.in_features}), got {tuple(z.shape)}"
            )
        measured = (z.to(self.centre) - self.centre) / self.scale
        return self._bend(measured @ self.projection.mT)

    def graph(self, z: Value) -> Value:
        """Write the map down."""
        scale = self.scale.expand(self.in_features)  # no one number: see power_of_two
        return self._bend_graph((z - self.centre) / scale @ self.projection.mT)

    def rearrange(self, columns: Tensor) -> None:
        """Read column ``columns[j]`` of features, as they were, in column j."""
        self.projection, self.centre = self.projection[:, columns], self.centre[columns]
        self.scale = self.scale if self.scale.numel() == 1 else self.scale[columns]

    def alike(self, other: "FeatureMap") -> bool:
        """Return whether two maps are the same, bit for bit."""
        mine, others = self.state_dict(), other.state_dict()
        return type(self) is type(other) and all(
            torch.equal(tensor, others[name].to(tensor.device)) for name, tensor in mine.items()
        )

    def _draw(self, random: np.random.Generator) -> None:
        """Draw what else is random."""

    @abstractmethod
    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the centre and the scale of some rows, in whatever order they are."""

    @abstractmethod
    def _bend(self, projected: Tensor) -> Tensor:
        """Return the mapped features of projected ones (n, width); may overwrite them."""

    @abstractmethod
    def _bend_graph(self, projected: Value) -> Value:
        """Write ``_bend`` down."""


class Relu(FeatureMap):
    """max(0, (z − centre)/scale · R): RanPAC's map, of features centred and scaled one by one.

    A feature that does not vary among the first rows is only centred.
    """

    name = "relu"

    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        centre = rows.mean(dim=0)
        deviation = (rows - centre).square().mean(dim=0).sqrt()
        rounding = len(rows) * torch.finfo(rows.dtype).eps * rows.abs().amax(dim=0)
        return centre, torch.where(deviation > rounding, deviation, 1.0)

    def _bend(self, projected: Tensor) -> Tensor:
        return projected.relu_()

    def _bend_graph(self, projected: Value) -> Value:
        return projected.unary("Relu")


class Fourier(FeatureMap):
    """cos((z − centre)/bandwidth · Ω + b): random features of a Gaussian kernel.

    The bandwidth is the median distance between two of the first rows that differ.
    """

    name = "fourier"
    offset: Tensor  # (width,) uniform from 0 to 2π

    def _draw(self, random: np.random.Generator) -> None:
        self.register_buffer("offset", torch.from_numpy(2 * np.pi * random.random(self.width)))

    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        distances = torch.pdist(rows)
        apart = distances[distances > 0]
        bandwidth = apart.median() if len(apart) else distances.new_ones(())
        return rows.mean(dim=0), bandwidth[None]

    def _bend(self, projected: Tensor) -> Tensor:
        return projected.add_(self.offset).cos_()

    def _bend_graph(self, projected: Value) -> Value:
        # Not Cos: not every runtime has it in float64.
        return (projected + (self.offset + np.pi / 2)).unary("Sin")


MAPS: Mapping[str, type[FeatureMap]] = {"relu": Relu, "fourier": Fourier}


def make_map(name: str, in_features: int, width: int, seed: int = 0) -> FeatureMap:
    """Make a feature map by its name.

    >>> z = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    >>> make_map("fourier", in_features=2, width=5).fit(z)(z).shape
    torch.Size([3, 5])
    """
    return look_up(name, MAPS, "map")(in_features, width, seed)
