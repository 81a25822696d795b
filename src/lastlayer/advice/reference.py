"""The reference: a converged softmax regression, its decay chosen on held-out rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lastlayer.advice.split import hold_out

DECAYS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # for features of root mean square norm 1
ROWS = 5_000  # at most, that the decay is found by
CHUNK = 1 << 15

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Reference:
    """A softmax regression behind a map."""

    weight: Tensor  # (h, N)
    bias: Tensor  # (N,)
    centre: Tensor  # (h,)
    scale: float
    decay: float
    map: Map | None = None

    def predict(self, z: Tensor) -> Tensor:
        """Return the class (n,) of each row."""
        return torch.cat([self._logits(part).argmax(dim=1) for part in z.split(CHUNK)])

    def _logits(self, z: Tensor) -> Tensor:
        mapped = z.float() if self.map is None else self.map(z.float()).float()
        return (mapped - self.centre) / self.scale @ self.weight + self.bias


def reference(
    z: Tensor, y: Tensor, n_classes: int, *, map: Map | None = None, seed: int = 0
) -> Reference:
    """Train a softmax regression until it has converged.

    Args:
        z: (n, h) features.
        y: (n,) their classes.
        n_classes: how many there are; those without rows are never answered.
        map: what features go through first.
        seed: decides the rows that the weight decay is chosen by.

    >>> z, y = torch.tensor([[0.0], [1.0], [5.0], [6.0]] * 5), torch.tensor([0, 0, 1, 1] * 5)
    >>> reference(z, y, n_classes=2).predict(torch.tensor([[0.5], [5.5]])).tolist()
    [0, 1]
    """
    x = z.float() if map is None else map(z.float()).float()
    centre = x.mean(dim=0)
    x = x - centre
    scale = float(x.double().square().sum(1).mean().sqrt()) or 1.0
    x = x / scale
    unseen = y.bincount(minlength=n_classes) == 0
    start = x.new_zeros(x.shape[1] + 1, n_classes)
    decay, start = _decay(x, y, start, seed)
    fitted = _converge(x, y, start, decay, most=150)
    bias = fitted[-1].masked_fill(unseen, -torch.inf)
    return Reference(fitted[:-1], bias, centre, scale, decay, map)


def _decay(x: Tensor, y: Tensor, start: Tensor, seed: int) -> tuple[float, Tensor]:
    """Find the decay by the error on held-out rows; from strong to weak, each from the last."""
    if len(x) > ROWS:
        drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:ROWS]
        x, y = x[drawn], y[drawn]
    held = hold_out(y, torch.zeros_like(y), None, part=0.2, turn=0, seed=seed)
    if not bool(held.any()):
        return DECAYS[len(DECAYS) // 2], start
    best, found, now = -1.0, (DECAYS[0], start), start
    for decay in DECAYS:
        now = _converge(x[~held], y[~held], now, decay, most=40)
        right = float(((x[held] @ now[:-1] + now[-1]).argmax(dim=1) == y[held]).double().mean())
        if right > best:
            best, found = right, (decay, now)
    return found


def _converge(x: Tensor, y: Tensor, start: Tensor, decay: float, most: int) -> Tensor:
    """Minimise the mean cross-entropy and the decay by L-BFGS."""
    weight = start.clone().requires_grad_()
    search = torch.optim.LBFGS(
        [weight], max_iter=most, tolerance_grad=1e-6, tolerance_change=1e-7,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def loss() -> Tensor:
        search.zero_grad()
        error = cross_entropy(x @ weight[:-1] + weight[-1], y)
        whole = error + decay / 2 * weight[:-1].square().sum()
        whole.backward()
        return whole

    with torch.enable_grad():
        search.step(loss)
    return weight.detach()
