"""Which features can be learned from: finite ones whose squares can be added up."""

import numpy as np
import torch
from torch import Tensor

from lastlayer.arguments import short
from lastlayer.errors import ArgumentError, DataError

LARGEST = 1e60  # of a feature: sums of fourth powers of such numbers are still finite
SMALL = 10_000  # numbers that numpy has looked at before torch begins to; BLAS takes threads beyond
_PLAIN = (torch.float32, torch.float64)  # what numpy and BLAS add up


def are_usable(z: Tensor) -> bool:
    """Return whether all features are finite and small enough that their squares add up."""
    if z.is_cpu and z.numel() < SMALL and z.dtype in _PLAIN:
        # NaN, infinity and large numbers show in the sum of squares, which is found fastest.
        flat = z.numpy()
        if float(np.vdot(flat, flat)) <= 1e30:
            return True
    least, most = (float(end) for end in z.aminmax())
    return least >= -LARGEST and most <= LARGEST


def check_float_type(dtype: object) -> None:
    """Refuse a type that a layer's parameters cannot have; None is PyTorch's default."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ArgumentError(f"expected a floating-point type as dtype, got {short(dtype)}")


def bad_features(z: Tensor) -> DataError:
    """Return an error saying what is wrong with features that cannot be learned from."""
    bad = sum(int((~torch.isfinite(part)).any(dim=1).sum()) for part in z.split(1 << 16))
    if bad:
        return DataError(f"expected finite features, got NaN or infinity in {bad} of {len(z)} rows")
    most = float(z.abs().max())
    return DataError(
        f"expected features of at most {LARGEST:.0e}, so that their squares can be added up, got "
        f"{most:.3g}: scale them"
    )
