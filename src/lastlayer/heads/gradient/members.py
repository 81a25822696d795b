"""Gradient heads side by side: the state of one, or of thousands, as one tensor for each part.

Members are laid out as (streams, members of a stream, …): the members of one stream learn from the
same mini-batches. A head is one stream with one member. Logits are kept class by class,
(…, classes, samples), so that the softmax runs along whole vectors of samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.heads.head import Preset
from lastlayer.layers import LAYERS, MASKS, Form
from lastlayer.layers.modules import gain_of_rows, inverse_norm

T = TypeVar("T")
ZERO_ROWS = ("linear", "linear_no_bias")


@dataclass
class Members:
    """The state of S streams with K gradient members each, of N classes and h features."""

    forms: Sequence[Form]  # K: what each member is
    masks: Sequence[str]  # K: how it is trained
    parameters: dict[str, Tensor]  # weight (S, K, N, h); bias, gamma (S, K, N); scale (S, K)
    velocity: dict[str, Tensor]  # of the same shapes
    lr: Tensor  # (S, K)
    steps: Tensor  # () how many steps were taken
    diverged: Tensor  # (S, K) the step, from 1, at which it diverged, or −1
    seen: Tensor | None  # "exact": (S, N) 0/1, the classes seen so far; None: "paper"

    def __post_init__(self) -> None:
        """Find runs of neighbouring members that share a property: each run is one slice."""
        # A slice is a view: work on a run copies nothing. The fleet sorts its members for this.
        self.biased = [run for on, run in _runs([f.bias for f in self.forms]) if on]
        self.unit_rows = [run for on, run in _runs([f.unit_rows for f in self.forms]) if on]
        self.unit_input = [run for on, run in _runs([f.unit_input for f in self.forms]) if on]
        self.gained = [(form, run) for form, run in _runs(self.forms) if form.gain]
        self.masked = [(MASKS[mask], run) for mask, run in _runs(self.masks) if mask != "none"]
        self.learned = {name for form in self.forms for name in form.learned}

    def rows(self) -> tuple[Tensor, Tensor | None]:
        """Return the rows (S, K, N, h), normalised where the layer does, and 1/‖A‖ (S, K, N, 1)."""
        weight = self.parameters["weight"]
        if not self.unit_rows:
            return weight, None
        inverse = torch.ones_like(weight[..., :1])
        for run in self.unit_rows:
            inverse[:, run] = inverse_norm(weight[:, run])
        return weight * inverse, inverse

    def scores(self, z: Tensor, rows: Tensor, inverse: Tensor) -> Tensor:
        """Return the logits (S, K, N, n) of features ``z`` (S, n, h) or (n, h), class by class."""
        if z.dim() == 2:
            # One matrix product for all members: they share their features (test samples).
            scores = (rows.flatten(0, 2) @ z.mT).view(*rows.shape[:3], -1)
        else:
            scores = torch.bmm(rows.flatten(1, 2), z.mT).view(*rows.shape[:3], -1)
        for run in self.unit_input:
            scores[:, run] *= inverse
        for form, run in self.gained:
            scores[:, run] *= self.gain(form, run).unsqueeze(-1)
        for run in self.biased:
            scores[:, run] += self.parameters["bias"][:, run].unsqueeze(-1)
        return scores

    def inverse_input(self, z: Tensor) -> Tensor:
        """Return 1/‖z‖ (…, 1, 1, n), a factor of the logits where a layer takes z's direction."""
        return inverse_norm(z).mT.unsqueeze(-3) if self.unit_input else z.new_ones(())

    def gain(self, form: Form, run: slice) -> Tensor:
        """Return the gain (S, k, N) or (S, k, 1) of a run of members."""
        return gain_of_rows(form, {str(form.gain): self.parameters[str(form.gain)][:, run]})

    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return weight (S, K, N, h), gain and bias (S, K, N): logit i is gain_i · A_i·z + b_i."""
        weight = self.parameters["weight"]
        gain, bias = torch.ones_like(weight[..., 0]), torch.zeros_like(weight[..., 0])
        for run in self.unit_rows:
            gain[:, run] = inverse_norm(weight[:, run]).squeeze(-1)
        for form, run in self.gained:
            gain[:, run] *= self.gain(form, run)
        for run in self.biased:
            bias[:, run] = self.parameters["bias"][:, run]
        if self.seen is not None:
            bias.masked_fill_((self.seen == 0)[:, None], -torch.inf)
        return weight.clone(), gain, bias

    def mark_diverged(self) -> None:
        """Note the members that diverged with the last step: their parameters are not finite."""
        finite = norms(self.parameters, self.lr).isfinite()
        lost = ~finite & (self.diverged < 0)
        torch.where(lost, self.steps, self.diverged, out=self.diverged)


def norms(parts: Mapping[str, Tensor], lr: Tensor) -> Tensor:
    """Return the norm (S, K) of all parts of each member together."""
    flat = [part.reshape(*lr.shape, -1) for part in parts.values()]
    each = torch.stack([torch.linalg.vector_norm(part, dim=-1) for part in flat])
    whole: Tensor = torch.linalg.vector_norm(each, dim=0)
    return whole


def _runs(items: Sequence[T]) -> list[tuple[T, slice]]:
    runs, start = [], 0
    for item, group in groupby(items):
        stop = start + len(list(group))
        runs.append((item, slice(start, stop)))
        start = stop
    return runs


def initial_parameters(
    layer: str,
    n_classes: int,
    in_features: int,
    preset: Preset,
    seed: int,
    start: str | None = None,
    gain: str | None = None,
) -> dict[str, Tensor]:
    """Return the first weight (N, h), and bias and gamma (N,) where the layer has them.

    Rows are kaiming normal and a bias as nn.Linear's; γ_i = ‖A_i‖. Under "exact" a linear layer
    starts at zero. Under "paper" the layers that are nn.Linear inside may start with its own
    uniform rows, as they did in the authors' code until September 2021 (docs/decisions/9).
    Numbers are drawn class by class, so that more classes leave the first ones unchanged. ``start``
    and ``gain`` are the options of ``GradientHead``; None: the layer's default.
    """
    uniform = preset == "paper" and HEADS[layer].start(start) == "uniform"
    if preset == "exact" and layer in ZERO_ROWS:
        weight = torch.zeros(n_classes, in_features)
        bias = torch.zeros(n_classes)
    else:
        weight = _rows(n_classes, in_features, seed, uniform)
        spread = np.random.default_rng([seed, 1]).uniform(-1, 1, n_classes)
        bias = torch.from_numpy(spread / math.sqrt(in_features)).float()
    parts = {"weight": weight, "bias": bias, "gamma": weight.norm(dim=1)}
    return {name: parts[name] for name in form_of(layer, gain).parameters}


def form_of(layer: str, gain: str | None = None) -> Form:
    """Return the closed form of a layer with the gain asked for."""
    found = HEADS[layer].gain(gain)
    return LAYERS[layer].form if found is None else LAYERS[layer].gains[found]


def _rows(n_classes: int, in_features: int, seed: int, uniform: bool) -> Tensor:
    source, shape = np.random.default_rng([seed, 0]), (n_classes, in_features)
    if uniform:
        draws = source.uniform(-1, 1, shape) / math.sqrt(in_features)
    else:
        draws = source.standard_normal(shape) * math.sqrt(2 / in_features)
    return torch.from_numpy(draws).float()
