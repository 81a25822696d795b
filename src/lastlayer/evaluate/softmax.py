"""What heads are compared with: a softmax regression retrained on everything until it converges."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lastlayer.data import Features
from lastlayer.errors import DataError
from lastlayer.evaluate.costs import too_large_to_retrain
from lastlayer.heads.maps.feature_map import FeatureMap

DECAYS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # tried from the largest on
HELD_OUT = 0.1  # of the training rows: the weight decay is chosen on them
MOST = 300  # steps of L-BFGS for each weight decay
TOLERANCE = 1e-5  # of the largest entry of the gradient
QUICK = 1e-4  # the same where speed matters more than the last digit
_LEAST, _CURVED = 1e-4, 4.0  # of the identity; how much less the loss curves than its features
_PIECE = 64 << 20  # bytes of logits and features at a time


@dataclass(frozen=True)
class Reference:
    """A converged softmax regression, behind a feature map if there is one."""

    layer: nn.Linear  # of features or of mapped features
    map: FeatureMap | None
    decay: float  # the weight decay that was chosen, of features of unit variance on average
    converged: bool  # whether the gradient vanished before the last step that was allowed
    steps: int  # of the last training, on all rows

    def predict(self, z: Tensor) -> Tensor:
        """Return the class (n,) with the largest logit."""
        size = max(_PIECE // (8 * self.layer.in_features), 1)
        with torch.no_grad():
            return torch.cat([self._logits(part).argmax(dim=1) for part in z.split(size)])

    def _logits(self, z: Tensor) -> Tensor:
        logits: Tensor = self.layer(_mapped(z, self.map).to(self.layer.weight))
        return logits


def reference(
    z: Tensor,
    y: Tensor,
    n_classes: int,
    *,
    map: FeatureMap | None = None,
    seed: int = 0,
    quick: bool = False,
) -> Reference:
    """Train a softmax regression on all rows until it converges.

    L-BFGS in coordinates in which the features are nearly uncorrelated. The weight decay is the one
    that gets most held-out rows right (the largest of equally good ones); the final training uses
    all rows. It takes 8 bytes for each row and (mapped) feature, and at most 300 passes over the
    data for each of nine trainings; a few dozen are usual. A class without rows is never predicted.
    ``map`` is a fitted feature map to train behind. ``quick`` trains in float32 and stops at a
    gradient ten times as large: half the memory and time.

    >>> z = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    >>> found = reference(z, torch.tensor([0, 0, 0, 1, 1, 1]), n_classes=2)
    >>> found.predict(z).tolist(), found.converged
    ([0, 0, 0, 1, 1, 1], True)
    """
    if len(z) < 2 or len(z) != len(y):
        raise DataError(f"there must be at least two rows, one label each, got {len(z)}, {len(y)}")
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed)).to(z.device)
    dtype = torch.float32 if quick else torch.float64
    problem = _Problem(z[order], y[order], n_classes, map, dtype)
    problem.tolerance = QUICK if quick else TOLERANCE
    start, decay = _choose(problem)
    weight, converged, steps = problem.train(start, decay)
    return Reference(problem.layer(weight), map, decay, converged, steps)


def retrained_accuracy(
    data: Features,
    label: str,
    n_classes: int,
    device: torch.device,
    rows: Tensor | None = None,
    map: FeatureMap | None = None,
) -> float:
    """Train a softmax regression until it converges, and return its accuracy on the test rows.

    It learns the column ``label``, of ``rows`` of the training features or of all, behind ``map``
    if there is one.
    """
    part = slice(None) if rows is None else rows
    n = len(data.train) if rows is None else len(rows)
    width = data.in_features if map is None else map.width
    if too_large_to_retrain(n, width, n_classes, device.type):
        size = f"{n} rows × {width} features × {n_classes} classes"
        raise DataError(f"{size} are too many to retrain on here")
    z, y = data.train.z[part].float().to(device), data.train.labels[label][part].to(device)
    found = reference(z, y, n_classes, map=map if map is None else map.to(device), quick=True)
    right = found.predict(data.test.z.float().to(device)).cpu() == data.test.labels[label]
    return float(right.double().mean())


def _choose(problem: "_Problem") -> tuple[Tensor, float]:
    """Return the decay that gets most held-out rows right, and the weight trained with it."""
    n_held = max(int(HELD_OUT * len(problem.y)), 1)
    weight = best_weight = problem.start()
    best, chosen, worse = -1, DECAYS[0], 0
    for decay in DECAYS:
        weight, *_ = problem.train(weight, decay, n_held)
        right = problem.right(weight, n_held)
        worse = 0 if right > best else worse + 1
        if right > best:
            best, chosen, best_weight = right, decay, weight
        if worse == 2:  # smaller ones only fit the rows better
            break
    return best_weight, chosen


def _mapped(z: Tensor, map: FeatureMap | None) -> Tensor:
    return z.double() if map is None else map(z)


class _Problem:
    """Softmax regression, trained in coordinates in which its features are nearly uncorrelated.

    A weight (n_classes, h + 1) acts on the centred features φ, the last column on 1. Training turns
    it to act on u = R⁻¹φ, where RRᵀ is the covariance of the features plus as much of the identity
    as the weight decay adds to the curvature of the loss. Weight decay is that of the weight on the
    features, scaled to unit variance on average.
    """

    tolerance = TOLERANCE

    def __init__(
        self, z: Tensor, y: Tensor, n_classes: int, map: FeatureMap | None, dtype: torch.dtype
    ) -> None:
        size = max(_PIECE // (8 * (z.shape[1] if map is None else map.width)), 1)
        self.phi = torch.cat([_mapped(part, map).to(dtype) for part in z.split(size)])
        self.y, self.n_classes = y, n_classes
        self.mean = self.phi.mean(dim=0)
        self.phi -= self.mean
        self.covariance = self.phi.mT @ self.phi / len(self.phi)
        self.level = float(self.covariance.diagonal().mean()) or 1.0
        self.added = -1.0  # of the identity to the covariance, times the level

    def start(self) -> Tensor:
        return self.phi.new_zeros(self.n_classes, self.phi.shape[1] + 1)

    def _turn(self, decay: float) -> None:
        """Change to the coordinates in which the loss with this decay is well conditioned."""
        added = max(_LEAST, _CURVED * decay)
        if added == self.added:
            return
        share, failed = added, True
        while failed:  # rounding can leave a wide covariance slightly indefinite
            covariance = self.covariance.clone()
            covariance.diagonal().add_(share * self.level)
            self.root, code = torch.linalg.cholesky_ex(covariance)
            share, failed = 10 * share, bool(code)
        identity = torch.eye(len(self.root), dtype=self.phi.dtype, device=self.phi.device)
        self.inverse = torch.linalg.solve_triangular(self.root, identity, upper=False)
        self.added = added

    def train(self, start: Tensor, decay: float, skip: int = 0) -> tuple[Tensor, bool, int]:
        """Train from a start, without the first rows; return if it converged, and its steps."""
        self._turn(decay)
        turned = torch.cat([start[:, :-1] @ self.root, start[:, -1:]], dim=1)
        weight = turned.requires_grad_()
        phi, y = self.phi[skip:], self.y[skip:]
        steps = 0

        def loss() -> float:
            nonlocal steps
            steps += 1
            value, weight.grad = self._loss(weight.detach(), phi, y, decay)
            return value

        optimiser = torch.optim.LBFGS(
            [weight], max_iter=MOST, max_eval=MOST, history_size=20, line_search_fn="strong_wolfe",
            tolerance_grad=self.tolerance, tolerance_change=0.0,
        )  # fmt: skip
        optimiser.step(loss)
        found = weight.detach()
        gradient = self._loss(found, phi, y, decay)[1]
        converged = float(gradient.abs().max()) <= 10 * self.tolerance
        return torch.cat([found[:, :-1] @ self.inverse, found[:, -1:]], dim=1), converged, steps

    def _loss(self, weight: Tensor, phi: Tensor, y: Tensor, decay: float) -> tuple[float, Tensor]:
        """Return the mean cross-entropy with its decay, and the gradient."""
        plain = weight[:, :-1] @ self.inverse  # the weight on the features themselves
        gradient = torch.zeros_like(weight)
        total = 0.0
        size = max(_PIECE // (8 * self.n_classes), 1)
        for part, labels in zip(phi.split(size), y.split(size), strict=True):
            log_p = torch.log_softmax(torch.addmm(weight[:, -1], part, plain.mT), dim=1)
            total -= float(log_p.gather(1, labels[:, None]).sum(dtype=torch.float64))
            error = log_p.exp_()
            error.scatter_add_(1, labels[:, None], error.new_full((len(labels), 1), -1.0))
            gradient[:, :-1] += error.mT @ part
            gradient[:, -1] += error.sum(dim=0)
        gradient /= len(y)
        gradient[:, :-1] += decay * self.level * plain
        gradient[:, :-1] = gradient[:, :-1] @ self.inverse.mT
        penalty = 0.5 * decay * self.level * float(plain.square().sum())
        return total / len(y) + penalty, gradient

    def right(self, weight: Tensor, n: int) -> int:
        """Count the right answers for the first rows."""
        logits = torch.addmm(weight[:, -1], self.phi[:n], weight[:, :-1].mT)
        return int((logits.argmax(dim=1) == self.y[:n]).sum())

    def layer(self, weight: Tensor) -> nn.Linear:
        plain, bias = weight[:, :-1], weight[:, -1] - weight[:, :-1] @ self.mean
        linear = nn.Linear(plain.shape[1], self.n_classes, dtype=plain.dtype, device=plain.device)
        unseen = self.y.bincount(minlength=self.n_classes) == 0
        with torch.no_grad():
            linear.weight.copy_(plain)
            linear.bias.copy_(bias.masked_fill(unseen, -torch.inf))
        return linear
