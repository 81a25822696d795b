"""Linear discriminant analysis behind a random feature map; with "fourier" it is KLDA's."""

from typing import Any, Literal

from lastlayer.heads.maps.feature_map import FeatureMap
from lastlayer.heads.maps.mapped_head import MappedHead, Width
from lastlayer.heads.statistics.slda import SldaHead
from lastlayer.heads.statistics.statistics_head import BUDGET


class RandomSldaHead(MappedHead):
    """Linear discriminant analysis behind a random feature map.

    As KLDA (Momeni, Mazumder and Liu 2024) and RanDumb (Prabhu et al. 2024), with one exact
    within-class covariance, whatever the order of the data, and the bandwidth from the data.

    Args:
        in_features: the size h of a feature vector.
        n_classes: classes known beforehand.
        width: the size of a mapped feature vector, or "auto": h + 2,080 from 64 features on, else
            2,000; statistics take width² · 8 bytes.
        map: "relu", "fourier" or "quadratic"; "auto": quadratic from 64 features on, else fourier.
        seed: of the map's projection.
        rows: "unit": rows of length 1, behind a map that depends on no row, or "as_is"; "auto":
            unit for a quadratic map of 64 features or more.
        shrinkage: "oas" or a number in [0, 1].
        prior: "uniform" or "empirical".
        budget: bytes that its statistics may take.
        like: a head or a map to take a fixed map from.

    >>> import torch
    >>> z, y = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), [0, 0, 1, 1]
    >>> head = RandomSldaHead(in_features=2, width=50)
    >>> head.observe(z, torch.tensor(y))  # what no linear layer can tell apart
    >>> head.predict(z).tolist()
    [0, 0, 1, 1]
    """

    name = "random_slda"
    of_few = "fourier"
    kind = SldaHead

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        *,
        width: Width = "auto",
        map: str = "auto",
        seed: int = 0,
        rows: str = "auto",
        shrinkage: float | Literal["oas"] = "oas",
        prior: Literal["uniform", "empirical"] = "uniform",
        budget: int = BUDGET,
        like: FeatureMap | MappedHead | None = None,
    ) -> None:
        shared: dict[str, Any] = {"map": map, "seed": seed, "budget": budget, "like": like}
        shared["rows"] = rows
        own: dict[str, Any] = {"shrinkage": shrinkage, "prior": prior}
        super().__init__(in_features, n_classes, width=width, **shared, **own)
