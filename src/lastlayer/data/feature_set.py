"""Frozen features of one split, with their labels, checked on arrival."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass

import torch
from torch import Tensor

from lastlayer.core.checks import expect
from lastlayer.core.names import look_up, printable
from lastlayer.core.tensors import check_dense, first_bad_row
from lastlayer.errors import DataError, LabelError, OptionError, ShapeError


@dataclass(frozen=True, eq=False, repr=False)
class FeatureSet:
    """Frozen features of one split.

    >>> from lastlayer import load_features
    >>> train = load_features("cifar100").train
    >>> train
    FeatureSet(50000 × 64 float16, labels: fine, coarse)
    >>> len(train), train.in_features, train.y[:5].tolist()
    (50000, 64, [19, 29, 0, 11, 1])
    """

    z: Tensor  # (n, h) float16 or float32 as stored, perhaps on disk; widened per batch
    labels: Mapping[str, Tensor]  # each (n,) int64, classes 0…N−1: fine, coarse, session …
    label: str = ""  # the primary column, which ``y`` gives; the first one if not named
    check: InitVar[bool] = True  # look at every feature; False: that was done before

    def __post_init__(self, check: bool) -> None:
        """Check shapes, types and labels always, the features themselves unless told not to."""
        _check_features(self.z)
        expect(self.labels, Mapping, "labels", "a table of names and tensors")
        if not self.labels:
            raise LabelError("labels must have at least one column, got none")
        expect(self.label, str, "label", "the name of a label column")
        expect(check, bool, "check", "True or False")
        object.__setattr__(self, "label", self.label or next(iter(self.labels)))
        look_up(self.label, self.labels, "label column")
        for name, column in self.labels.items():
            check_column(name, column, len(self.z))
        if check:
            _check_finite(self.z)

    @property
    def y(self) -> Tensor:
        """The primary labels, (n,) int64."""
        return self.labels[self.label]

    @property
    def in_features(self) -> int:
        """The number of features of a sample."""
        return self.z.shape[1]

    def take(self, rows: Tensor) -> "FeatureSet":
        """Return some of the rows, copied."""
        labels = {name: column[rows] for name, column in self.labels.items()}
        return FeatureSet(self.z[rows], labels, self.label, check=False)

    def __len__(self) -> int:
        return len(self.z)

    def __repr__(self) -> str:
        dtype = str(self.z.dtype).removeprefix("torch.")
        return (
            f"FeatureSet({len(self)} × {self.in_features} {dtype}, "
            f"labels: {', '.join(self.labels)})"
        )


def _check_features(z: Tensor) -> None:
    expect(z, Tensor, "features", "a tensor")
    check_dense(z, "features")
    if z.dtype not in (torch.float16, torch.float32):
        raise DataError(f"features must be of type float16 or float32, got {z.dtype}")
    if z.ndim != 2:
        raise ShapeError(f"features must have shape (n, h), got {tuple(z.shape)}")
    if z.numel() == 0:
        raise DataError(f"features must have at least one row and column, got {tuple(z.shape)}")


def check_column(name: str, column: Tensor, n: int) -> None:
    """Refuse what is no column of labels for ``n`` rows, or has a name that no column can have."""
    expect(name, str, "the name of a label column", "text")
    if name == "z" or not name or printable(name) != name:
        raise OptionError(
            f"a label column cannot be named '{printable(name)}': choose another name"
        )
    expect(column, Tensor, f"labels '{name}'", "a tensor")
    check_dense(column, f"labels '{name}'")
    if column.dtype != torch.int64:
        raise LabelError(f"labels '{name}' must be of type int64, got {column.dtype}")
    if column.shape != (n,):
        raise ShapeError(
            f"labels '{name}' must have {n} values, one for each row, got shape "
            f"{tuple(column.shape)}"
        )
    if n and column.min() < 0:
        raise LabelError(f"labels '{name}' must be at least 0, got {column.min()}")


def _check_finite(z: Tensor) -> None:
    if (row := first_bad_row(z)) is not None:
        raise DataError(
            f"features must be finite within {str(z.dtype).removeprefix('torch.')}, got NaN or "
            f"infinity in row {row}: fix or drop such rows"
        )
