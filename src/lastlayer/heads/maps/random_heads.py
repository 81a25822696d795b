"""Ridge regression and linear discriminant analysis, each behind a random feature map."""

from typing import Any, Literal

from lastlayer.heads.maps.feature_map import FeatureMap
from lastlayer.heads.maps.mapped_head import MappedHead, Width
from lastlayer.heads.statistics.ridge import Penalty, RidgeHead, Weigh, check_penalty
from lastlayer.heads.statistics.slda import SldaHead
from lastlayer.heads.statistics.statistics_head import BUDGET


class RandomRidgeHead(MappedHead):
    """Least squares on one-hot targets behind a random feature map.

    As RanPAC (McDonnell et al. 2023), but that the map sees unit rows, or centred and scaled ones,
    an intercept, and ridge's penalty, which follows from everything seen. The map "auto" of fewer
    than 64 features is relu; ``MappedHead`` says what the options of the map are.

    Args:
        penalty: relative to the mean eigenvalue, or "auto": as that of ridge.
        weigh: "samples" (each weighs the same) or "classes" (each class does).

    >>> import torch
    >>> z, y = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), [0, 0, 1, 1]
    >>> head = RandomRidgeHead(in_features=2, width=50)
    >>> head.observe(z, torch.tensor(y))  # what no linear layer can tell apart
    >>> head.predict(z).tolist()
    [0, 0, 1, 1]
    """

    name = "random_ridge"
    of_few = "relu"
    kind = RidgeHead

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        *,
        width: Width = "auto",
        map: str = "auto",
        seed: int = 0,
        rows: str = "auto",
        penalty: Penalty = "auto",
        weigh: Weigh = "samples",
        budget: int = BUDGET,
        like: FeatureMap | MappedHead | None = None,
    ) -> None:
        shared: dict[str, Any] = {"map": map, "seed": seed, "budget": budget, "like": like}
        shared["rows"] = rows
        own: dict[str, Any] = {"penalty": check_penalty(penalty), "weigh": weigh}
        super().__init__(in_features, n_classes, width=width, **shared, **own)


class RandomSldaHead(MappedHead):
    """Linear discriminant analysis behind a random feature map.

    As KLDA (Momeni, Mazumder and Liu 2024) and RanDumb (Prabhu et al. 2024), with one exact
    within-class covariance, whatever the order of the data, and the bandwidth from the data. The
    map "auto" of fewer than 64 features is fourier; ``MappedHead`` says what the options of the map
    are.

    Args:
        shrinkage: "oas" or a number in [0, 1].
        prior: "uniform" or "empirical".

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
