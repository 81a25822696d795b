"""What a head looks at before it learns or answers: the kind of features, and of labels."""

from typing import cast

import torch
from torch import Tensor

from lastlayer.errors import DataError, LabelError, ShapeError
from lastlayer.heads.finite import SMALL

MOST_CLASSES = 1_000_000  # a label beyond is an id, not a class
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_feature_kind(z: Tensor, in_features: int) -> None:
    """Refuse features that are not a dense floating-point tensor (n, in_features)."""
    if not isinstance(z, Tensor) or z.dtype not in _FLOATS:
        hint = "" if isinstance(z, Tensor) else "; torch.as_tensor makes one of an array"
        raise DataError(f"expected features as a floating-point tensor, got {kind(z)}{hint}")
    if z.layout is not torch.strided or z.is_meta or z.is_nested:
        raise DataError(f"expected features as a dense tensor with values, got {_form(z)}")
    if z.dim() != 2 or z.shape[1] != in_features:
        hint = ": for one sample, z[None]" if z.shape == (in_features,) else ""
        raise ShapeError(
            f"expected features of shape (n, {in_features}), got {tuple(z.shape)}{hint}"
        )


def check_label_kind(y: Tensor, n: int) -> None:
    """Refuse labels that are not ``n`` integers."""
    if not isinstance(y, Tensor) or y.dtype not in _INTEGERS:
        raise LabelError(f"expected labels as an integer tensor, got {kind(y)}")
    if y.layout is not torch.strided or y.is_meta or y.is_nested:
        raise LabelError(f"expected labels as a dense tensor with values, got {_form(y)}")
    if y.shape != (n,):
        raise ShapeError(f"expected {n} labels, one for each row, got shape {tuple(y.shape)}")


def check_range(least: int, most: int) -> None:
    """Refuse labels that cannot number classes, by the least and the largest of them."""
    if least < 0:
        raise LabelError(f"expected labels from 0 upwards, got {least}")
    if most >= MOST_CLASSES:
        raise LabelError(
            f"expected classes numbered from 0 to below {MOST_CLASSES}, got {most}: "
            "number them, or use HeadClassifier, which takes any labels"
        )


def ends(y: Tensor) -> tuple[int, int]:
    """Return the least and the largest label, the fastest way for their number."""
    if y.numel() == 1:
        only = y.item()
        return cast(int, only), cast(int, only)
    if y.is_cpu and y.numel() < SMALL:
        own = y.numpy()
        return int(own.min()), int(own.max())
    least, most = map(int, y.aminmax())
    return least, most


def _form(x: Tensor) -> str:
    if x.is_nested:
        return "a nested one"
    return "one on the meta device" if x.is_meta else f"layout {x.layout}"


def kind(x: object) -> str:
    """Say what was handed over in place of a tensor, or of which type a tensor is."""
    return str(x.dtype) if isinstance(x, Tensor) else f"a {type(x).__name__}"
