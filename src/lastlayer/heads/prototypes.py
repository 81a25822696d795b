"""One point for each class: the logit of class i is −‖z − p_i‖, by one matrix product."""

import math

import torch
from torch import Tensor, nn

from lastlayer.heads.export import linear_layer
from lastlayer.heads.graph import Value, masked, squared_distances

_FEW = 1 << 16  # differences that are taken sooner than a product is prepared
_PAIRS = {"cpu": 1 << 20}  # numbers of the rows that are looked at again at once
_MOST = 1 << 26  # the same on a GPU, where each step costs a fixed time
_NEAR = 1e-3  # squared distances below that part of ‖z‖² + ‖p‖² are taken from differences


class Prototypes:
    """Points (n_classes, h) in float64, made ready for ‖z − p‖² = ‖z‖² − 2 z·p + ‖p‖².

    All is measured from the middle of the points, so that features far from zero lose no digits.
    What a product cannot tell, the nearest points and those hardly farther, is computed from the
    differences: so logits are right to nine digits, and a tie is a tie.
    """

    def __init__(self, points: Tensor) -> None:
        self._points = points
        self._ready: tuple[Tensor, Tensor, Tensor] | None = None

    def logits(self, z: Tensor) -> Tensor:
        """Return −‖z − p_i‖ (n, n_classes)."""
        points = self._points
        if points.device != z.device:  # the head was moved
            self._points, self._ready = points.to(z.device), None
        if z.shape[0] * self._points.numel() <= _FEW:
            mode = "donot_use_mm_for_euclid_dist"
            return -torch.cdist(z.to(self._points), self._points, compute_mode=mode)
        return self._squared_distances(z).sqrt_().neg_()

    def _squared_distances(self, z: Tensor) -> Tensor:
        """Return ‖z − p_i‖² (n, n_classes), none below 0: what rounding makes so is looked at."""
        if self._ready is None:
            middle = self._points.mean(dim=0)
            centred = self._points - middle
            self._ready = middle, centred, centred.square().sum(dim=1)
        middle, centred, own = self._ready
        z = z.to(middle)
        d = z - middle
        length = d.square().sum(dim=1, keepdim=True)
        squared = torch.addmm(own, d, centred.mT, alpha=-2).add_(length)
        size = length + own.max()
        wrong = 8 * (d.shape[1] + 4) * torch.finfo(d.dtype).eps * size
        limit = torch.maximum(squared.amin(dim=1, keepdim=True) + wrong, _NEAR * size)
        i, j = (squared <= limit).nonzero(as_tuple=True)
        step = max(_PAIRS.get(z.device.type, _MOST) // d.shape[1], 1)
        for a, b in zip(i.split(step), j.split(step), strict=True):
            squared[a, b] = (z[a] - self._points[b]).square_().sum(dim=1)
        return squared


def nearest_graph(z: Value, points: Tensor, known: Tensor) -> tuple[Value, Value]:
    """Write down the logits −‖z − p_i‖, and the least distance as novelty."""
    squared, unit = squared_distances(z, points, known)
    logits = masked(-(squared.unary("Sqrt") * unit), known)
    return logits, -logits.reduce("Max")


def nearest_as_linear(prototypes: Tensor, known: Tensor, dtype: torch.dtype | None) -> nn.Linear:
    """Return a layer for prototypes (n_classes, h); ``known`` says which classes can win."""
    bias = -0.5 * prototypes.square().sum(dim=1)
    return linear_layer(prototypes, bias.masked_fill(~known, -torch.inf), dtype)


def temperature_of_distances(spread: float, n: float, in_features: int) -> float:
    """Return a temperature for logits −‖z − p_i‖ where nobody has calibrated: σ/2.

    σ² = Σ‖z − p_y‖²/(n·h) is the variance of a feature within its class, so probabilities do not
    change with the unit of the features. For independent features σ/√h would be right; those of
    networks are far from it, and half a deviation was within 1.6 times the best on seven real sets
    (docs/decisions/13).
    """
    deviation = math.sqrt(max(spread, 0.0) / (n * in_features or 1))
    return deviation / 2 if 0 < deviation < math.inf else 1.0  # 1: nothing varies
