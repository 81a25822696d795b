"""An ordinary nn.Linear, made of what a head has learned."""

import torch
from torch import Tensor, nn

from lastlayer.heads.finite import check_float_type


def linear_layer(weight: Tensor, bias: Tensor, dtype: torch.dtype | None) -> nn.Linear:
    """Return an ordinary layer of a weight (n_classes, h) and a bias (n_classes,).

    A class that must not win has the bias −∞.
    """
    check_float_type(dtype)
    linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return linear.to(weight.device)
