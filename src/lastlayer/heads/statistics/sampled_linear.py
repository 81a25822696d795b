"""A softmax layer trained on samples of class Gaussians: the nn.Linear that does not forget."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import Abilities
from lastlayer.core.checks import MOST_SEED, choice, whole
from lastlayer.errors import DataError
from lastlayer.heads.statistics.covariance import whiten
from lastlayer.heads.statistics.gaussians import GaussianHead
from lastlayer.heads.statistics.statistics_head import BUDGET, SOLUTION

STEPS, BATCH, RATE = 500, 2048, 0.05
AHEAD = 64  # rows of noise of a class that are multiplied at once, at least


class SampledLinearHead(GaussianHead):
    """A plain softmax layer, trained on fresh samples of the class Gaussians, never on kept rows.

    As SLCA's classifier alignment (Zhang et al. 2023), with exact statistics. It is a function of
    statistics and seed alone: at the first question after a change it is trained from zero, by a
    fixed number of steps of Adam, each on new samples, in coordinates in which the covariance that
    all classes share is the identity. It is not the paper's, and has no presets.

    Args:
        nu: how many samples the shared covariance counts for in each class; None: 2 h.
        prior: "empirical" (a class is drawn as often as it was seen) or "uniform".
        steps: of training; each costs about 2048 · h · (h/2 + 2 n_classes) multiplications.
        seed: of the samples.
        budget: bytes that its statistics may take; training takes half as much again.

    >>> import torch
    >>> head = SampledLinearHead(in_features=2)
    >>> head.observe(torch.tensor([[0.0, 0.0], [0.0, 1.0], [4.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> head.predict(torch.tensor([[1.0, 0.0], [3.0, 1.0]])).tolist()
    [0, 1]
    """

    name = "sampled_linear"
    smaller = "use a head that keeps one scatter for all classes, slda or ridge"
    solution = SOLUTION

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        *,
        nu: float | None = None,
        prior: Literal["empirical", "uniform"] = "empirical",
        steps: int = STEPS,
        seed: int = 0,
        budget: int = BUDGET,
    ) -> None:
        choice(prior, ("uniform", "empirical"), "prior")
        whole(steps, "steps", least=1)
        whole(seed, "seed", least=0, most=MOST_SEED)
        options = {"prior": prior, "steps": steps, "seed": seed}
        super().__init__(in_features, n_classes, nu=nu, budget=budget, **options)
        self._register()

    @property
    def abilities(self) -> Abilities:
        """Every class has a scatter of its own; answers are a linear layer's."""
        return replace(super().abilities, forgets_class=True, leaves_out=False)

    def _why_not(self, ability: str) -> str:
        return "it is trained anew on samples of its classes, which one row less would redraw"

    def _refresh(self) -> None:
        s, shared = self.statistics, self._shared()
        known = self.seen.nonzero().flatten()
        share = s.count[known].double()
        if self.options["prior"] == "uniform":
            share = torch.ones_like(share)
        share = share / share.sum()
        self.centre = share @ s.mean[known]
        root = self._derived["root"] = _root_of(shared)
        mean = whiten(root, s.mean[known] - self.centre)
        # A row of noise times a class's factor is a sample's deviation.
        factors = mean.new_empty(len(known), *root.shape, dtype=torch.float32)
        for factor, c in zip(factors, known.tolist(), strict=True):
            factor.copy_(whiten(root, self._factor(c, shared).mT))
        weight, bias = self._train(mean, factors, share)
        self.weight = s.mean.new_zeros(self.n_classes, self.in_features)
        self.bias = s.mean.new_full((self.n_classes,), -torch.inf)
        self.weight[known] = torch.linalg.solve_triangular(root.mT, weight.mT, upper=True).mT
        self.bias[known] = bias

    def _make_root(self) -> Tensor:
        return _root_of(self._shared())

    def _train(self, mean: Tensor, factors: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Train from zero; return the mean of the second half's weights, which varies least.

        A deviation from the mean is taken both ways: half the work, and less variance. Deviations
        are float32, as their noise is; what is summed over steps is float64.
        """
        k, h = mean.shape
        pairs = max(BATCH // (2 * k), 2)  # of mirrored samples of a class in a step
        steps = self.options["steps"]
        few = 8 * k * k <= BATCH  # classes: to turn their weights costs less than to turn the noise
        rows = _noise(None if few else factors, mean.shape, pairs, self.options["seed"])
        own = torch.arange(k, device=mean.device)
        weighs = (share / (2 * pairs))[:, None]  # samples of a class weigh as its share
        state = Adam(mean.new_zeros(k, h + 1))
        averaged = torch.zeros_like(state.weight)
        for step in range(steps):
            weight, bias = state.weight[:, :-1], state.weight[:, -1]
            of_mean = torch.addmm(bias, mean, weight.mT).float()[:, None]
            row, turned = next(rows).to(factors), weight.mT.float()
            off = row @ (factors @ turned if few else turned)  # (k, pairs, k)
            there, back = torch.softmax(of_mean + off, 2), torch.softmax(of_mean - off, 2)
            error = (there + back).sum(dim=1).double()  # (k, k), of class and logit
            error[own, own] -= 2 * pairs
            error *= weighs
            side = (there - back).mul_(weighs.float()[..., None])
            if few:
                slope = (side.mT @ row @ factors).sum(dim=0)
            else:
                slope = side.flatten(0, 1).mT @ row.flatten(0, 1)
            slope = torch.addmm(slope.double(), error.mT, mean)
            gradient = torch.cat([slope, error.sum(dim=0)[:, None]], dim=1)
            state.step(gradient, RATE * (1 - step / steps))
            if 2 * step >= steps:
                averaged += state.weight
        averaged /= steps - (steps + 1) // 2
        return averaged[:, :-1], averaged[:, -1]


def _root_of(shared: Tensor) -> Tensor:
    """Return the Cholesky factor (h, h) of the shrunk covariance."""
    root, failed = torch.linalg.cholesky_ex(shared)
    if failed:
        raise DataError(f"the covariance of {len(shared)} features must be invertible, got none")
    found: Tensor = root
    return found


def _noise(
    factors: Tensor | None, shape: tuple[int, ...], pairs: int, seed: int
) -> Iterator[Tensor]:
    """Yield noise (k, pairs, h) for one step after another, times the factors if there are some.

    Where a class has few rows in a step, those of several steps go into one product: it takes as
    long to read the factors for 2 rows as for 64.
    """
    k, h = shape
    generator = torch.Generator().manual_seed(seed)
    ahead = -(-AHEAD // pairs)
    while True:
        noise = [torch.randn(k, pairs, h, generator=generator) for _ in range(ahead)]
        if factors is None:
            yield from noise
        else:
            yield from torch.bmm(torch.cat(noise, dim=1).to(factors), factors).split(pairs, dim=1)


class Adam:
    """Kingma and Ba's Adam for one weight, in its own precision."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.mean, self.square, self.steps = torch.zeros_like(weight), torch.zeros_like(weight), 0

    def step(self, gradient: Tensor, rate: float) -> None:
        """Take one step."""
        self.steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.lerp_(gradient.square(), 0.01)
        mean = self.mean / (1 - 0.9**self.steps)
        square = self.square / (1 - 0.99**self.steps)
        self.weight -= rate * mean / (square.sqrt() + 1e-8)
