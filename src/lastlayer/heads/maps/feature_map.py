"""Feature maps: z (n, h) → φ (n, width), drawn from a seed, of unit rows or scaled to the first."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from lastlayer.catalogue.map_widths import all_products
from lastlayer.core.checks import MOST_SEED, choice, whole
from lastlayer.core.names import look_up
from lastlayer.core.tensors import unit_rows
from lastlayer.errors import DataError, MergeError, OptionError, ShapeError
from lastlayer.heads.graph import Value, unit_graph
from lastlayer.heads.shared_module import Precise

ROWS = 1000  # rows that fix what depends on the data


class FeatureMap(Precise, ABC):
    """A map of features that is the same for a whole stream; it computes in float64.

    The projection is drawn from the seed alone, and saved with the head: no other machine or
    version need draw the same numbers. Of rows as they are, the scale of the features is measured
    once, by ``fit``; until then ``centre`` and ``scale`` are empty. A map of unit rows depends on
    no row: each is scaled to length 1 first.
    """

    copies_share = True
    name: ClassVar[str]
    unit: ClassVar[float] = 1.0  # what unit rows are divided by
    projection: Tensor  # (width, h) standard normal
    centre: Tensor  # (h,) what features are measured from; (0,) until fitted
    scale: Tensor  # (h,) or (1,) what they are divided by; (0,) until fitted

    def __init__(self, in_features: int, width: int, seed: int = 0, rows: str = "as_is") -> None:
        super().__init__()
        self.rows = choice(rows, ("as_is", "unit"), "rows")
        width, in_features = whole(width, "a width", least=1), whole(in_features, "in_features", 1)
        self.seed = seed = whole(seed, "a seed", least=0, most=MOST_SEED)
        random = np.random.Generator(np.random.PCG64(seed))
        directions = self._directions(in_features, width)
        drawn = _filled(random.standard_normal, directions, in_features)
        self.register_buffer("projection", drawn)
        self._draw(random)
        for name in ("centre", "scale"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        if rows == "unit":
            self.centre = self.centre.new_zeros(in_features)
            self.scale = self.scale.new_full((1,), self.unit)

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
        features are left as large as they are. A map of unit rows is as it is.
        """
        if self.rows == "unit":
            return self
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
        z = unit_rows(z.to(self.centre)) if self.rows == "unit" else z.to(self.centre)
        return self._bend((z - self.centre) / self.scale)

    def graph(self, z: Value) -> Value:
        """Write the map down."""
        z = unit_graph(z) if self.rows == "unit" else z
        scale = self.scale.expand(self.in_features)  # no one number: see power_of_two
        return self._bend_graph((z - self.centre) / scale)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        sizes = self.centre.numel(), self.scale.numel()
        if sizes not in {(0, 0), (self.in_features, 1), (self.in_features,) * 2}:
            args[-1].append(f"centre and scale must have {self.in_features} numbers, got {sizes}")

    def rearrange(self, columns: Tensor) -> None:
        """Read column ``columns[j]`` of features, as they were, in column j."""
        self.projection, self.centre = self.projection[:, columns], self.centre[columns]
        self.scale = self.scale if self.scale.numel() == 1 else self.scale[columns]

    def alike(self, other: "FeatureMap") -> bool:
        """Return whether two maps are the same, bit for bit."""
        mine, others = self.state_dict(), other.state_dict()
        same = type(self) is type(other) and self.rows == other.rows
        return same and all(
            torch.equal(tensor, others[name].to(tensor.device)) for name, tensor in mine.items()
        )

    def _directions(self, in_features: int, width: int) -> int:
        """Return how many directions are drawn."""
        return width

    def _draw(self, random: np.random.Generator) -> None:
        """Draw what else is random."""

    @abstractmethod
    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the centre and the scale of some rows, in whatever order they are."""

    @abstractmethod
    def _bend(self, z: Tensor) -> Tensor:
        """Return the mapped features of measured ones (n, h)."""

    @abstractmethod
    def _bend_graph(self, z: Value) -> Value:
        """Write ``_bend`` down."""


class Relu(FeatureMap):
    """max(0, (z − centre)/scale · R): RanPAC's map, of features centred and scaled one by one.

    A feature that does not vary among the first rows is only centred.
    """

    name = "relu"

    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return _one_by_one(rows)

    def _bend(self, z: Tensor) -> Tensor:
        return (z @ self.projection.mT).relu_()

    def _bend_graph(self, z: Value) -> Value:
        return (z @ self.projection.mT).unary("Relu")


class Fourier(FeatureMap):
    """cos((z − centre)/bandwidth · Ω + b): random features of a Gaussian kernel.

    The bandwidth is the median distance between two of the first rows that differ, and √2 of unit
    rows.
    """

    name = "fourier"
    unit = math.sqrt(2.0)
    offset: Tensor  # (width,) uniform from 0 to 2π

    def _draw(self, random: np.random.Generator) -> None:
        self.register_buffer("offset", 2 * np.pi * _filled(random.random, self.width))

    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        distances = torch.pdist(rows)
        apart = distances[distances > 0]
        bandwidth = apart.median() if len(apart) else distances.new_ones(())
        return rows.mean(dim=0), bandwidth[None]

    def _bend(self, z: Tensor) -> Tensor:
        return (z @ self.projection.mT).add_(self.offset).cos_()

    def _bend_graph(self, z: Value) -> Value:
        # Not Cos: not every runtime has it in float64.
        return (z @ self.projection.mT + (self.offset + np.pi / 2)).unary("Sin")


class Quadratic(FeatureMap):
    """√2·u beside products of two of its features, or of u on two random directions.

    u is the unit row, or the features centred and scaled one by one and divided by √h. At the width
    h + h(h + 1)/2 all products are there, without random numbers, and φ·φ' = (1 + u·u')² − 1. Other
    widths have width − h products (a·u)(b·u), with the same φ·φ' on average.
    """

    name = "quadratic"
    second: Tensor  # (width − h, h) standard normal; (0, h) with all products

    @property
    def width(self) -> int:
        """The size of a mapped feature vector."""
        h = self.in_features
        return h + (len(self.projection) or h * (h + 1) // 2)

    def _directions(self, in_features: int, width: int) -> int:
        if width <= in_features:
            raise OptionError(
                f"width must be above the {in_features} features for a quadratic map, got {width}"
            )
        return 0 if width == all_products(in_features) else width - in_features

    def _draw(self, random: np.random.Generator) -> None:
        self.register_buffer("second", _filled(random.standard_normal, *self.projection.shape))

    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        centre, scale = _one_by_one(rows)
        return centre, scale * math.sqrt(rows.shape[1])

    def rearrange(self, columns: Tensor) -> None:
        """Read column ``columns[j]`` of features, as they were, in column j."""
        if not len(self.projection) and not torch.equal(columns, columns.sort().values):
            raise MergeError(
                "columns in another order make other products: learn them in one order"
            )
        super().rearrange(columns)
        self.second = self.second[:, columns]

    def _pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features of each product, and what a product of two is multiplied by."""
        i, j = torch.triu_indices(self.in_features, self.in_features, device=self.centre.device)
        factor = self.centre.new_full(i.shape, math.sqrt(2.0))
        return i, j, factor.masked_fill_(i == j, 1.0)

    def _bend(self, z: Tensor) -> Tensor:
        if len(self.projection):
            products = (z @ self.projection.mT).mul_(z @ self.second.mT)
            products /= math.sqrt(len(self.projection))
        else:
            i, j, factor = self._pairs()
            products = z[:, i].mul_(z[:, j]).mul_(factor)
        return torch.cat([math.sqrt(2.0) * z, products], dim=1)

    def _bend_graph(self, z: Value) -> Value:
        graph, root = z.graph, math.sqrt(2.0)
        if len(self.projection):
            size = len(self.projection) ** -0.25
            products = (z @ (size * self.projection.mT)) * (z @ (size * self.second.mT))
        else:
            i, j, factor = self._pairs()
            products = graph.add("Gather", z, i, axis=1) * graph.add("Gather", z, j, axis=1)
            products = products * factor
        linear = z * torch.full((self.in_features,), root, dtype=torch.float64)
        return graph.add("Concat", linear, products, axis=1)


def _filled(draw: Callable[..., Any], *shape: int) -> Tensor:
    """Return random numbers; of a map without memory, which has no values, none are drawn."""
    made = torch.empty(shape, dtype=torch.float64)
    return made if made.is_meta else made.copy_(torch.from_numpy(draw(shape)))


MAPS: Mapping[str, type[FeatureMap]] = {"relu": Relu, "fourier": Fourier, "quadratic": Quadratic}


def _one_by_one(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return each feature's mean and deviation among some rows; 1 where it does not vary."""
    centre = rows.mean(dim=0)
    deviation = (rows - centre).square().mean(dim=0).sqrt()
    rounding = len(rows) * torch.finfo(rows.dtype).eps * rows.abs().amax(dim=0)
    return centre, torch.where(deviation > rounding, deviation, 1.0)


def make_map(
    name: str, in_features: int, width: int, seed: int = 0, rows: str = "as_is"
) -> FeatureMap:
    """Make a feature map by its name.

    >>> z = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    >>> make_map("fourier", in_features=2, width=5).fit(z)(z).shape
    torch.Size([3, 5])
    """
    return look_up(name, MAPS, "map")(in_features, width, seed, rows)
