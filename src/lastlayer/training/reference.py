"""What heads are held against: a softmax regression on everything at once, that has converged."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lastlayer.errors import DataError
from lastlayer.heads.maps import FeatureMap

DECAYS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # tried from the largest on
HELD_OUT = 0.1  # of the training rows: the weight decay is chosen on them
MOST = 300  # steps of L-BFGS for each weight decay
TOLERANCE = 1e-5  # of the largest entry of the gradient
_PIECE = 64 << 20  # bytes of logits and features at a time


@dataclass(frozen=True)
class Reference:
    """A converged softmax regression, behind a feature map if there is one."""

    layer: nn.Linear  # float64, of features or of mapped features
    map: FeatureMap | None
    decay: float  # the weight decay that was chosen, of features of unit variance on average
    converged: bool  # whether the gradient vanished before the last step that was allowed
    steps: int  # of the last training, on all rows

    def predict(self, z: Tensor) -> Tensor:
        """Give the class (n,) with the largest logit."""
        size = max(_PIECE // (8 * self.layer.in_features), 1)
        with torch.no_grad():
            return torch.cat([self._logits(part).argmax(dim=1) for part in z.split(size)])

    def _logits(self, z: Tensor) -> Tensor:
        logits: Tensor = self.layer(_mapped(z, self.map).to(self.layer.weight))
        return logits


def reference(
    z: Tensor, y: Tensor, n_classes: int, *, map: FeatureMap | None = None, seed: int = 0
) -> Reference:
    """Train a softmax regression on all rows until it converges.

    L-BFGS in coordinates in which the features are nearly uncorrelated; the weight decay is the one
    that gets most held-out rows right, of equally good ones the largest, and all rows train the
    last. It takes 16 bytes for each row and (mapped) feature, and at most 300 passes over the data
    for each of seven trainings; a few dozen are usual.

    Args:
        z: features (n, h).
        y: labels (n,) below ``n_classes``.
        n_classes: how many classes there are.
        map: a fitted feature map to train behind.
        seed: of the choice of rows that are held out.

    >>> z = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    >>> found = reference(z, torch.tensor([0, 0, 0, 1, 1, 1]), n_classes=2)
    >>> found.predict(z).tolist(), found.converged
    ([0, 0, 0, 1, 1, 1], True)
    """
    if len(z) < 2 or len(z) != len(y):
        raise DataError(f"expected rows with labels, two at least, got {len(z)} and {len(y)}")
    problem = _Problem(z, y, n_classes, map)
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed)).to(z.device)
    n_held = max(int(HELD_OUT * len(z)), 1)
    held, rest = order[:n_held], order[n_held:]
    weight, best, chosen, worse = problem.start(), -1, DECAYS[0], 0
    for decay in DECAYS:
        weight, *_ = problem.train(weight, decay, rest)
        right = problem.right(weight, held)
        worse = 0 if right > best else worse + 1
        if right > best:
            best, chosen, from_here = right, decay, weight
        if worse == 2:  # smaller ones only fit the rows better
            break
    weight, converged, steps = problem.train(from_here, chosen, order)
    return Reference(problem.layer(weight), map, chosen, converged, steps)


def _mapped(z: Tensor, map: FeatureMap | None) -> Tensor:
    return z.double() if map is None else map(z)


class _Problem:
    """Softmax regression in coordinates in which its features are nearly uncorrelated.

    A weight (n_classes, h + 1) acts on u = R⁻¹(φ − m), the last column on 1, where RRᵀ is the
    covariance of the features φ plus a little of the identity. Weight decay is that of the weight
    on the features themselves, scaled to unit variance on average.
    """

    def __init__(self, z: Tensor, y: Tensor, n_classes: int, map: FeatureMap | None) -> None:
        phi = torch.cat(
            [_mapped(part, map) for part in z.split(max(_PIECE // (8 * z.shape[1]), 1))]
        )
        self.y, self.n_classes = y, n_classes
        self.mean = phi.mean(dim=0)
        phi -= self.mean
        covariance = phi.mT @ phi / len(phi)
        self.level = float(covariance.trace()) / len(covariance) or 1.0
        covariance.diagonal().add_(1e-4 * self.level)
        self.root = torch.linalg.cholesky(covariance)
        self.u = torch.linalg.solve_triangular(self.root, phi.mT, upper=False).mT.contiguous()
        identity = torch.eye(len(self.root), dtype=phi.dtype, device=phi.device)
        self.inverse = torch.linalg.solve_triangular(self.root, identity, upper=False)

    def start(self) -> Tensor:
        shape = self.n_classes, self.u.shape[1] + 1
        return torch.zeros(shape, dtype=self.u.dtype, device=self.u.device)

    def train(self, start: Tensor, decay: float, rows: Tensor) -> tuple[Tensor, bool, int]:
        """Train on some rows from a start; say whether it converged, and after how many steps."""
        weight = start.clone().requires_grad_()
        u, y = self.u[rows], self.y[rows]
        steps = 0

        def loss() -> float:
            nonlocal steps
            steps += 1
            value, weight.grad = self._loss(weight.detach(), u, y, decay)
            return value

        optimiser = torch.optim.LBFGS(
            [weight], max_iter=MOST, max_eval=MOST, history_size=20, line_search_fn="strong_wolfe",
            tolerance_grad=TOLERANCE, tolerance_change=0.0,
        )  # fmt: skip
        optimiser.step(loss)
        found = weight.detach()
        gradient = self._loss(found, u, y, decay)[1]
        return found, float(gradient.abs().max()) <= 10 * TOLERANCE, steps

    def _loss(self, weight: Tensor, u: Tensor, y: Tensor, decay: float) -> tuple[float, Tensor]:
        """Give the mean cross-entropy with its decay, and the gradient."""
        w = weight[:, :-1]
        gradient = torch.zeros_like(weight)
        total = 0.0
        size = max(_PIECE // (8 * self.n_classes), 1)
        for part, labels in zip(u.split(size), y.split(size), strict=True):
            log_p = torch.log_softmax(torch.addmm(weight[:, -1], part, w.mT), dim=1)
            total -= float(log_p.gather(1, labels[:, None]).sum())
            error = log_p.exp_()
            error.scatter_add_(1, labels[:, None], error.new_full((len(labels), 1), -1.0))
            gradient[:, :-1] += error.mT @ part
            gradient[:, -1] += error.sum(dim=0)
        plain = w @ self.inverse  # the weight on the features themselves
        gradient /= len(y)
        gradient[:, :-1] += decay * self.level * (plain @ self.inverse.mT)
        penalty = 0.5 * decay * self.level * float(plain.square().sum())
        return total / len(y) + penalty, gradient

    def right(self, weight: Tensor, rows: Tensor) -> int:
        logits = torch.addmm(weight[:, -1], self.u[rows], weight[:, :-1].mT)
        return int((logits.argmax(dim=1) == self.y[rows]).sum())

    def layer(self, weight: Tensor) -> nn.Linear:
        plain = weight[:, :-1] @ self.inverse
        linear = nn.Linear(plain.shape[1], self.n_classes, dtype=torch.float64, device=plain.device)
        with torch.no_grad():
            linear.weight.copy_(plain)
            linear.bias.copy_(weight[:, -1] - plain @ self.mean)
        return linear
