"""Weights of samples: what is accepted, and what a batch with weights is to a head.

A whole weight is so many copies of the row, and 0 is none. So counts are sums of weights, and what
follows from a number of samples (shrinkage, a penalty, a prior) takes that sum for it
(docs/decisions/21-weights.md).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import short
from lastlayer.core.tensors import check_dense
from lastlayer.errors import DataError, ShapeError

GONE = 1e-10  # of a count: less that is left of it after rows were removed is rounding
HEAVIEST = 1e15  # beyond, one more row would be lost in a sum


def check_weights(weight: Any, n: int) -> Tensor:
    """Return weights (n,) in float64; refuse what can be none.

    >>> check_weights([1, 0.5], 2)
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    try:
        given = weight.detach() if isinstance(weight, Tensor) else torch.tensor(np.asarray(weight))
        check_dense(given, "sample_weight")
        found = given.to("cpu", torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"sample_weight must be numbers: {short(error)}") from None
    if found.shape != (n,):
        raise ShapeError(f"sample_weight must be ({n},), one for each row, got {(*found.shape,)}")
    wrong = ~((found >= 0) & (found <= HEAVIEST))
    if bool(wrong.any()):
        row = int(wrong.int().argmax())
        raise DataError(
            f"sample_weight must be from 0 to {HEAVIEST:.0e}, got {found[row]:g} in row {row}"
        )
    return found


def without_light_rows(
    z: Tensor, y: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Leave out rows of weight 0; weights that are all 1 are none."""
    if bool((weight == 1).all()):
        return z, y, None
    heavy = weight > 0
    if not bool(heavy.all()):
        z, y, weight = z[heavy.to(z.device)], y[heavy.to(y.device)], weight[heavy]
    return z, y, weight.to(y.device)
