"""Tensors at the door: their type and layout, features that can be learned from, and labels."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.core.checks import kind_of, short
from lastlayer.errors import ArgumentError, DataError, LabelError, ShapeError

_REAL = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool}
    | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
    | {torch.uint16, torch.uint32, torch.uint64}
)


def check_dense(tensor: Tensor, what: str, error: type[DataError | LabelError] = DataError) -> None:
    """Refuse a tensor that is sparse, quantised, without values, or not real.

    >>> check_dense(torch.zeros(2, device="meta"), "features")
    Traceback (most recent call last):
    ...
    lastlayer.errors.DataError: features must have values, got a tensor on the device 'meta'
    """
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise error(f"{what} must be a dense tensor, got a {kind} one: use to_dense()")
    if tensor.dtype not in _REAL:
        raise error(
            f"{what} must be real numbers (float16 to float64, or integers), got {tensor.dtype}"
        )
    if tensor.is_meta:
        raise error(f"{what} must have values, got a tensor on the device 'meta'")


LARGEST = 1e60  # of a feature: sums of fourth powers of such numbers are still finite
SMALLEST = 1e-100  # of the largest feature: the squares of smaller ones are lost
SMALL = 10_000  # numbers that numpy has looked at before torch begins to; BLAS takes threads beyond
PIECE = 1 << 22  # numbers that are looked at in one go: 16 MB of float32
_PLAIN = (torch.float32, torch.float64)  # what numpy and BLAS add up


def are_usable(z: Tensor) -> bool:
    """Return whether all features are finite and small enough that their squares add up."""
    if z.is_cpu and z.numel() < SMALL and z.dtype in _PLAIN:
        # NaN, infinity and large numbers show in the sum of squares, which is found fastest.
        flat = z.numpy()
        if float(np.vdot(flat, flat)) <= 1e30:
            return True
    least, most = torch.stack(z.aminmax()).tolist()  # read once: a GPU waits each time
    return bool(least >= -LARGEST and most <= LARGEST)


def check_not_tiny(z: Tensor) -> None:
    """Refuse features that are all so small that their squares are 0, and differ from none.

    >>> check_not_tiny(torch.full((2, 3), 1e-200, dtype=torch.float64))
    Traceback (most recent call last):
    ...
    lastlayer.errors.DataError: features must not all be below 1e-100, whose squares are 0, got at \
most 1e-200: scale them
    """
    most = max(abs(float(end)) for end in z.aminmax()) if z.numel() else 0.0
    if 0 < most < SMALLEST:
        raise DataError(
            f"features must not all be below {SMALLEST:.0e}, whose squares are 0, got at most "
            f"{most:.3g}: scale them"
        )


def are_whole(weight: Tensor) -> Tensor:
    """Return () whether all weights are whole numbers, without asking a device to wait."""
    return (weight == weight.round()).all()


def check_float_type(dtype: object) -> None:
    """Refuse a type that a layer's parameters cannot have; None is PyTorch's default."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ArgumentError(f"dtype must be a floating-point type, got {short(dtype)}")


def bad_features(z: Tensor) -> DataError:
    """Return an error saying what is wrong with features that cannot be learned from."""
    wrong = torch.cat([(~torch.isfinite(part)).any(dim=1) for part in z.split(1 << 16)])
    if bad := int(wrong.sum()):
        first = int(wrong.int().argmax())
        return DataError(
            f"features must be finite, got NaN or infinity in {bad} of {len(z)} rows, first in "
            f"row {first}"
        )
    most = float(z.abs().max())
    return DataError(
        f"features must be at most {LARGEST:.0e}, so that their squares can be added up, got "
        f"{most:.3g}: scale them"
    )


def first_bad_row(z: Tensor) -> int | None:
    """Return the first row (n, h) that is not finite, looked for in pieces of features on disk."""
    start = 0
    for part in z.split(max(1, PIECE // z.shape[1])):
        if (bad := ~part.isfinite().all(1)).any():
            return start + int(bad.int().argmax())
        start += len(part)
    return None


MOST_CLASSES = 1_000_000  # a label beyond is an id, not a class
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_feature_kind(z: Tensor, in_features: int) -> None:
    """Refuse features that are not a dense floating-point tensor (n, in_features)."""
    if not isinstance(z, Tensor) or z.dtype not in _FLOATS:
        hint = "" if isinstance(z, Tensor) else "; torch.as_tensor makes one of an array"
        raise DataError(f"features must be a floating-point tensor, got {kind(z)}{hint}")
    if z.layout is not torch.strided or z.is_meta or z.is_nested:
        check_dense(z, "features")
    if z.dim() != 2:
        hint = ": for one sample, z[None]" if z.shape == (in_features,) else ""
        raise ShapeError(f"features must be (n, {in_features}), got {tuple(z.shape)}{hint}")
    if z.shape[1] != in_features:
        raise ShapeError(f"features must have {in_features} columns, got {z.shape[1]}")


def check_label_kind(y: Tensor, n: int) -> None:
    """Refuse labels that are not ``n`` integers."""
    if not isinstance(y, Tensor) or y.dtype not in _INTEGERS:
        raise LabelError(f"labels must be an integer tensor, got {kind(y)}")
    if y.layout is not torch.strided or y.is_meta or y.is_nested:
        check_dense(y, "labels", LabelError)
    if y.shape != (n,):
        raise ShapeError(f"labels must be ({n},), one for each row, got {tuple(y.shape)}")


def check_range(least: int, most: int) -> None:
    """Refuse labels that cannot number classes, by the least and the largest of them."""
    if least < 0:
        raise LabelError(f"labels must be at least 0, got {least}")
    if most >= MOST_CLASSES:
        raise LabelError(
            f"labels must be below {MOST_CLASSES}, got {most}: number the classes from 0, or use "
            "HeadClassifier, which takes any labels"
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


def check_batch(
    z: Tensor, y: Tensor, in_features: int, device: torch.device, trusted_from: int | None = None
) -> tuple[Tensor, Tensor, int]:
    """Refuse a batch that cannot be learned; return it on the device, with its largest label or −1.

    It waits for the device once at most. A batch of ``trusted_from`` rows or more stays where it
    lies, and `statistics/updating.py` checks its values while it adds them up.
    """
    check_feature_kind(z, in_features)
    n = z.shape[0]
    check_label_kind(y, n)
    z = z.detach() if z.requires_grad else z
    if not n:
        return z, y, -1
    later = trusted_from is not None and n >= trusted_from and (z.is_cpu or z.device != device)
    if z.is_cuda and y.is_cuda:
        both = [*z.aminmax(), *y.aminmax()]
        *ends_z, least, most = torch.stack([end.double() for end in both]).tolist()
        least, most = int(least), int(most)
        if not all(-LARGEST <= end <= LARGEST for end in ends_z):
            raise bad_features(z)
    else:
        if not later and not are_usable(z):
            raise bad_features(z)
        least, most = ends(y)
    check_range(least, most)
    # Asked before it is moved or widened: to() takes its time even where it does nothing.
    if not later and z.device != device:
        z = z.to(device)
    if y.dtype != torch.int64 or y.device != device:
        y = y.to(device=device, dtype=torch.int64)
    return z, y, most


def check_queries(z: Tensor, in_features: int) -> Tensor:
    """Refuse features that cannot be answered; return them without gradients."""
    check_feature_kind(z, in_features)
    z = z.detach()
    if z.shape[0] and not are_usable(z):
        raise bad_features(z)
    return z


def row_bytes(rows: Tensor) -> Iterator[bytes]:
    """Yield the numbers of each row (n, h) as bytes, equal for equal rows whatever their type."""
    for part in rows.split(max((1 << 20) // max(rows.shape[1], 1), 1)):
        plain = (part.detach().double() + 0.0).cpu().numpy()  # + 0.0: there is one zero
        yield from (row.tobytes() for row in plain)


def row_hashes(rows: Tensor) -> NDArray[np.int64]:
    """Return a number for each row (n,), equal for equal rows; others in another process."""
    return np.fromiter(map(hash, row_bytes(rows)), dtype=np.int64, count=len(rows))


def kind(x: object) -> str:
    """Return the type of a tensor, or what was given in place of one."""
    return str(x.dtype) if isinstance(x, Tensor) else kind_of(x)


def unit_rows(z: Tensor) -> Tensor:
    """Return rows (n, h) scaled to length 1, in float64; a row of zeros stays as it is.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    # By its largest entry first, so that the squares of no row vanish or overflow.
    z = z.double()
    largest = z.abs().amax(dim=1, keepdim=True) if z.shape[1] else z
    z = z / torch.where(largest > 0, largest, 1.0)
    length = z.square().sum(dim=1, keepdim=True).sqrt_()
    return z.div_(torch.where(length > 0, length, 1.0))
