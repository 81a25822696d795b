"""A feature set takes nothing that cannot be learned from."""

import pytest
import torch
from torch import Tensor

from lastlayer.core import tensors
from lastlayer.data import FeatureSet
from lastlayer.errors import DataError, LabelError, OptionError, ShapeError, UnknownNameError

Z = torch.arange(6.0).reshape(3, 2)
Y = torch.tensor([0, 2, 1])


def test_the_first_column_is_primary_unless_another_is_named() -> None:
    labels = {"fine": Y, "coarse": Y // 2}
    assert FeatureSet(Z, labels).y is Y
    assert torch.equal(FeatureSet(Z, labels, "coarse").y, Y // 2)


def test_size() -> None:
    data = FeatureSet(Z.half(), {"y": Y})
    assert (len(data), data.in_features) == (3, 2)
    assert repr(data) == "FeatureSet(3 × 2 float16, labels: y)"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_features_must_be_finite(bad: float, dtype: torch.dtype) -> None:
    z = Z.to(dtype, copy=True)
    z[2, 0] = bad
    with pytest.raises(DataError, match="got NaN or infinity in row 2"):
        FeatureSet(z, {"y": Y})


def test_every_piece_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "PIECE", 4)
    for row in range(11):
        z = torch.zeros(11, 2)
        z[row, 1] = float("nan")
        with pytest.raises(DataError, match=f"row {row}: fix or drop"):
            FeatureSet(z, {"y": torch.zeros(11, dtype=torch.int64)})


@pytest.mark.parametrize(
    ("z", "error", "message"),
    [
        (Z[0], ShapeError, r"features must have shape \(n, h\), got \(2,\)"),
        (Z[None], ShapeError, r"got \(1, 3, 2\)"),
        (Z.double(), DataError, "features must be of type float16 or float32, got torch.float64"),
        (Z.long(), DataError, "got torch.int64"),
        (Z[:0], DataError, "at least one row"),
        (Z[:, :0], DataError, "at least one row and column"),
    ],
)
def test_features_of_a_wrong_shape_or_type(z: Tensor, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        FeatureSet(z, {"y": Y[: len(z)]})


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ({}, LabelError, "at least one column"),
        ({"y": Y.float()}, LabelError, "labels 'y' must be of type int64, got torch.float32"),
        (
            {"y": Y[:2]},
            ShapeError,
            r"labels 'y' must have 3 values, one for each row, got shape \(2,\)",
        ),
        ({"y": Y[:, None]}, ShapeError, "labels 'y' must have 3 values"),
        ({"y": Y, "s": Y - 1}, LabelError, "labels 's' must be at least 0, got -1"),
        ({"z": Y}, OptionError, "cannot be named 'z'"),
    ],
)
def test_labels_that_are_none(labels: dict[str, Tensor], error: type, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        FeatureSet(Z, labels)
    assert isinstance(caught.value, ValueError)


def test_an_unknown_primary_column() -> None:
    with pytest.raises(UnknownNameError, match="unknown label column 'fin'; did you mean 'fine'"):
        FeatureSet(Z, {"fine": Y}, "fin")


def test_it_is_frozen() -> None:
    with pytest.raises(AttributeError):
        FeatureSet(Z, {"y": Y}).z = Z  # type: ignore[misc]
