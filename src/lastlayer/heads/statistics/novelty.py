"""How unlike all that was learned inputs are: distances from the nearest class or all data."""

import torch
from torch import Tensor

from lastlayer.errors import DataError
from lastlayer.heads.graph import Value, squared_distances
from lastlayer.heads.prototypes import Prototypes
from lastlayer.heads.statistics.covariance import whiten


class Mahalanobis:
    """How far inputs are from the nearest class mean, in deviations that all classes share.

    ``root`` (h, h) is the Cholesky factor of their covariance; ``means`` (k, h) are of the classes
    that were seen.
    """

    def __init__(self, root: Tensor, means: Tensor) -> None:
        self.root, self.centre = root, means.mean(dim=0)
        self.white = whiten(root, means - self.centre)  # (k, h)
        self._prototypes = Prototypes(self.white)

    def novelty(self, z: Tensor) -> Tensor:
        """Measure rows (n, h)."""
        white = whiten(self.root, z.to(self.root) - self.centre)
        return -self._prototypes.logits(white).amax(dim=1)

    def graph(self, z: Value) -> Value:
        """Write ``novelty`` down."""
        identity = torch.eye(len(self.root), dtype=self.root.dtype, device=self.root.device)
        white = (z - self.centre) @ whiten(self.root, identity)
        known = torch.ones(len(self.white), dtype=torch.bool, device=self.white.device)
        squared, unit = squared_distances(white, self.white, known)
        return squared.reduce("Min").unary("Sqrt") * unit


class RelativeMahalanobis:
    """How far inputs are from the nearest class mean, less how far they are from all the data.

    Ren et al. (2021): the squared Mahalanobis distance to a class less that under one Gaussian of
    everything, T = Σ + MᵀPM, M the class means measured from the middle and P their shares. The two
    differ in as many directions as there are classes, so with a = MΣ⁻¹z it is
    min_c (m_cᵀΣ⁻¹m_c − 2 a_c) + aᵀ(P⁻¹ + MΣ⁻¹Mᵀ)⁻¹a: to answer takes no square matrix of the size
    of a wide map. Where there are more classes than features, the last term is zᵀ(Σ⁻¹ − T⁻¹)z:
    nor one of the size of very many classes. ``root`` and ``means`` are as ``Mahalanobis`` takes
    them, ``shares`` (k,) those of the classes in the data.
    """

    def __init__(self, root: Tensor, means: Tensor, shares: Tensor) -> None:
        self.centre, self.means = shares @ means, means
        self.deviation = float(root.square().sum() / len(root)) ** 0.5  # of a feature in its class
        apart = means - self.centre
        self.weight = torch.cholesky_solve(apart.mT, root).mT  # (k, h)
        self.bias = -0.5 * (apart * self.weight).sum(dim=1)
        if not bool(self.bias.isfinite().all()):
            raise DataError("class means must be within 1e150 deviations of one another")
        self.of_classes = len(apart) <= len(root)  # what ``outer`` is multiplied with: a, or z
        make = self._outer_of_classes if self.of_classes else self._outer_of_features
        self.outer = make(root, apart, shares)  # the last term is ‖a·outer‖², or ‖z·outer‖²

    def _outer_of_classes(self, root: Tensor, apart: Tensor, shares: Tensor) -> Tensor:
        """Return U (k, k) with U·Uᵀ = (P⁻¹ + MΣ⁻¹Mᵀ)⁻¹ = P^½(I + P^½MΣ⁻¹MᵀP^½)⁻¹P^½.

        By its eigenvalues, since classes that hardly vary make it singular but for rounding.
        """
        part = shares.sqrt()[:, None]
        gram = part * (apart @ self.weight.mT) * part.mT
        values, directions = torch.linalg.eigh((gram + gram.mT) / 2)
        outer: Tensor = part * directions / (1 + values.clamp(min=0)).sqrt()
        return outer

    def _outer_of_features(self, root: Tensor, apart: Tensor, shares: Tensor) -> Tensor:
        """Return V (h, h) with V·Vᵀ = Σ⁻¹ − T⁻¹ = L⁻ᵀG(I + G)⁻¹L⁻¹, G = L⁻¹MᵀPML⁻ᵀ, Σ = LLᵀ."""
        white = whiten(root, apart * shares.sqrt()[:, None])
        values, directions = torch.linalg.eigh(white.mT @ white)
        values = values.clamp(min=0)
        scaled = directions * (values / (1 + values)).sqrt()
        outer: Tensor = torch.linalg.solve_triangular(root.mT, scaled, upper=True)
        return outer

    def novelty(self, z: Tensor) -> Tensor:
        """Measure rows (n, h)."""
        z = z.to(self.weight) - self.centre
        a = z @ self.weight.mT
        shared: Tensor = ((a if self.of_classes else z) @ self.outer).square().sum(dim=1)
        return shared - 2 * (a + self.bias).amax(dim=1)

    def graph(self, z: Value) -> Value:
        """Write ``novelty`` down."""
        z = z - self.centre
        a = z @ self.weight.mT
        shared: Value = ((a if self.of_classes else z) @ self.outer).square().reduce("Sum")
        return shared - (a + self.bias).reduce("Max") * 2.0


class InDeviations:
    """How far inputs are from the nearest class mean, in deviations of a feature within its class.

    ``Mahalanobis`` where all directions vary alike: it takes no square matrix to answer.
    """

    def __init__(self, means: Tensor, deviation: float) -> None:
        self.points, self.deviation = means / deviation, deviation
        self._prototypes = Prototypes(self.points)

    def novelty(self, z: Tensor) -> Tensor:
        """Measure rows (n, h)."""
        return -self._prototypes.logits(z.to(self.points) / self.deviation).amax(dim=1)

    def graph(self, z: Value) -> Value:
        """Write ``novelty`` down."""
        known = torch.ones(len(self.points), dtype=torch.bool, device=self.points.device)
        squared, unit = squared_distances(z / self.deviation, self.points, known)
        return squared.reduce("Min").unary("Sqrt") * unit


class PartlyRelative:
    """The square of a distance, less a share of the distance from all the data.

    By itself the distance takes for strange what is rare in every class; relative to all the data
    it is blind to whatever no class differs in, which is most of what tells two kinds of text
    apart. Such a mixture was never the worst of the three on any set (docs/decisions/13).
    """

    def __init__(
        self, distance: Mahalanobis | InDeviations, relative: RelativeMahalanobis, share: float
    ) -> None:
        self.distance, self.relative, self.share = distance, relative, share

    def novelty(self, z: Tensor) -> Tensor:
        """Measure rows (n, h)."""
        squared = self.distance.novelty(z).square()
        return (1 - self.share) * squared + self.share * self.relative.novelty(z)

    def graph(self, z: Value) -> Value:
        """Write ``novelty`` down."""
        squared = self.distance.graph(z).square() * (1 - self.share)
        return squared + self.relative.graph(z) * self.share
