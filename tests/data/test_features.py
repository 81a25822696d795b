"""Features from arrays, and through their file."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lastlayer import load_features
from lastlayer.core.tensor_files import fingerprint, write_tensors
from lastlayer.data import Features, FeatureSet, Origin
from lastlayer.data.from_arrays import assemble
from lastlayer.data.made_by import refuse_others
from lastlayer.errors import (
    DataError,
    FileFormatError,
    LabelError,
    MissingFileError,
    OptionError,
    ShapeError,
    UnknownNameError,
)

Z = np.arange(12.0).reshape(6, 2)
Y = ["b", "a", "b", "c", "a", "b"]
TEST = (Z[:2] + 0.5, ["c", "a"])


def test_arrays_and_labels_of_any_type() -> None:
    data = Features.from_arrays(Z, Y, test=TEST, session=[10, 10, 9, 9, 2, 2])
    assert data.train.z.dtype == data.test.z.dtype == torch.float32
    assert data.train.y.tolist() == [1, 0, 1, 2, 0, 1]
    assert data.test.y.tolist() == [2, 0]
    assert data.names == {"y": ("a", "b", "c"), "session": ("2", "9", "10")}
    assert data.train.labels["session"].tolist() == [2, 2, 1, 1, 0, 0]
    assert "session" not in data.test.labels
    assert (data.label, data.n_classes, data.in_features) == ("y", 3, 2)


def test_test_columns_share_the_numbers_of_train() -> None:
    data = Features.from_arrays(Z, Y, test=(*TEST, {"session": [4, 1]}), session=[1, 1, 2, 2, 3, 3])
    assert data.names["session"] == ("1", "2", "3", "4")
    assert data.test.labels["session"].tolist() == [3, 0]


@pytest.mark.parametrize(
    ("y", "names"),
    [
        ([10, 2, 10, 2, 10, 2], ("2", "10")),
        (np.array([10, 2, 10, 2, 10, 2], dtype=object), ("2", "10")),
        (torch.tensor([1, 0, 1, 0, 1, 0], dtype=torch.uint8), ("0", "1")),
        ([True, False] * 3, ("False", "True")),
        ([date(2024, 1, 2), date(2023, 1, 2)] * 3, ("2023-01-02", "2024-01-02")),
        (np.array(["2024-01-02", "2023-01-02"] * 3, "M8[D]"), ("2023-01-02", "2024-01-02")),
        (np.array([b"b", b"a"] * 3), ("a", "b")),
    ],
)
def test_label_types(y: object, names: tuple[str, ...]) -> None:
    data = Features.from_arrays(Z, y, test=(Z, y))
    assert data.names["y"] == names
    assert data.train.y.tolist() == [1, 0] * 3


@pytest.mark.parametrize(
    ("z", "dtype"),
    [
        (Z.astype(np.float16), torch.float16),
        (Z.astype(np.float32), torch.float32),
        (Z.astype(">f4"), torch.float32),
        (Z[:, ::-1], torch.float32),
        (Z.astype(np.uint8), torch.float32),
        (torch.tensor(Z, dtype=torch.bfloat16), torch.float32),
        (torch.tensor(Z, requires_grad=True), torch.float32),
        (Z.tolist(), torch.float32),
    ],
)
def test_feature_types(z: object, dtype: torch.dtype) -> None:
    data = Features.from_arrays(z, Y, test=(z, Y))
    assert data.train.z.dtype == dtype
    expected = z.detach().double().numpy() if isinstance(z, torch.Tensor) else np.asarray(z)
    assert np.array_equal(data.train.z.double().numpy(), expected.astype(np.float64))


def test_an_array_that_cannot_be_written_to_is_not_copied() -> None:
    z = Z.astype(np.float32)
    z.flags.writeable = False
    assert Features.from_arrays(z, Y, test=(z, Y)).train.z.data_ptr() == z.ctypes.data


@pytest.mark.parametrize(
    ("z", "y", "error", "message"),
    [
        (
            Z,
            Y[:5],
            ShapeError,
            r"labels 'y' must have 6 values, one for each row, got shape \(5,\)",
        ),
        (Z, [0.5] * 6, LabelError, "labels 'y' must be whole numbers or text, got float64"),
        (Z, [None, *Y[1:]], LabelError, "'y' lacks 1"),
        (
            Z,
            ["a", 1] * 3,
            LabelError,
            "'y' must be of one type, got text in row 0 and an int in row 1",
        ),
        (Z, [[0]] * 6, ShapeError, r"labels 'y' must have shape \(n,\), got \(6, 1\)"),
        (Z * np.nan, Y, DataError, "in row 0"),
        (Z * 1e300, Y, DataError, "NaN or infinity"),
        (Z[:, 0], Y, ShapeError, r"got \(6,\)"),
        (Z.astype(str), Y, DataError, "features must be numbers"),
        (Z * 1j, Y, DataError, "real numbers"),
        (Z > 3, Y, DataError, "real numbers"),
        (Z[:0], np.array([], dtype=int), DataError, "at least one row"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_bad_arrays(z: object, y: object, error: type, message: str) -> None:
    for test in (TEST, 0.5):
        with pytest.raises(error, match=message):
            Features.from_arrays(z, y, test=test)


@pytest.mark.parametrize("test", [[Z, Y], None, "0.2", (Z,)])
def test_a_test_set_is_a_tuple_or_a_part(test: Any) -> None:
    with pytest.raises(
        OptionError, match=r"test must be a tuple \(z, y\) or .* got (\w+|1 parts)$"
    ):
        Features.from_arrays(Z, Y, test=test)


@pytest.mark.parametrize("seed", [2**70, -(2**70)])
def test_a_seed_has_64_bits(seed: int) -> None:
    with pytest.raises(OptionError, match="a seed must be from -9223372036854775808 to"):
        Features.from_arrays(Z, Y, seed=seed)


def test_bad_test_sets() -> None:
    with pytest.raises(ShapeError, match="test features must have 2 columns as train, got 1"):
        Features.from_arrays(Z, Y, test=(Z[:, :1], Y))
    with pytest.raises(OptionError, match="got 1 parts"):
        Features.from_arrays(Z, Y, test=(Z,))
    with pytest.raises(
        OptionError, match=r"train must have every label column of test, and lacks session"
    ):
        Features.from_arrays(Z, Y, test=(Z, Y, {"session": Y}))
    with pytest.raises(OptionError, match=r"test must be a part between 0 and 1, got 1\.5"):
        Features.from_arrays(Z, Y, test=1.5)
    with pytest.raises(DataError, match="no class has two samples"):
        Features.from_arrays(Z, range(6))


def test_a_class_without_a_name() -> None:
    part = FeatureSet(torch.zeros(2, 1), {"y": torch.tensor([0, 3])})
    with pytest.raises(LabelError, match="class 3 of 'y' must have a name, got 3 names"):
        Features(part, part, {"y": ("a", "b", "c")})


def test_splits_with_other_primary_labels() -> None:
    labels = {"a": torch.tensor([0]), "b": torch.tensor([0])}
    names = {"a": ("x",), "b": ("x",)}
    with pytest.raises(LabelError, match="test labels must be 'a' as train, got 'b'"):
        Features(*(FeatureSet(torch.zeros(1, 1), labels, name) for name in "ab"), names)


@given(
    y=st.lists(st.integers(0, 4), min_size=2, max_size=60),
    test=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32),
)
def test_a_drawn_test_set_is_stratified(y: list[int], test: float, seed: int) -> None:
    z = np.arange(len(y))[:, None]
    if max(np.bincount(y)) < 2:
        return
    data = Features.from_arrays(z, y, test=test, seed=seed, copy=y)
    again = Features.from_arrays(z, y, test=test, seed=seed, copy=y)
    assert data.fingerprint == again.fingerprint
    rows = [split.z[:, 0].long() for split in (data.train, data.test)]
    assert sorted(torch.cat(rows).tolist()) == list(range(len(y)))
    for split, part in zip((data.train, data.test), rows, strict=True):
        assert part.tolist() == sorted(part.tolist())
        assert [data.names["y"][c] for c in split.y] == [str(y[row]) for row in part]
        assert torch.equal(split.y, split.labels["copy"])
    for c, n in enumerate(np.bincount(np.unique(y, return_inverse=True)[1])):
        drawn = int((data.test.y == c).sum())
        assert drawn == (0 if n == 1 else min(max(round(n * test), 1), n - 1))


def test_another_seed_draws_another_test_set() -> None:
    z, y = np.arange(100.0)[:, None], [0, 1] * 50
    draws = {Features.from_arrays(z, y, seed=seed).fingerprint for seed in range(5)}
    assert len(draws) == 5


def test_through_a_file(tmp_path: Path) -> None:
    data = Features.from_arrays(Z.astype(np.float16), Y, test=TEST, session=[1, 1, 2, 2, 3, 3])
    data.save(tmp_path / "mine.safetensors")
    read = load_features(tmp_path / "mine.safetensors")
    assert (read.names, read.origin, read.label) == (data.names, data.origin, "y")
    assert read.fingerprint == data.fingerprint == fingerprint(read._tensors())
    assert read.train.z.dtype == torch.float16
    assert list(read.train.labels) == ["y", "session"]
    assert list(read.test.labels) == ["y"]
    for name, tensor in data._tensors().items():
        assert torch.equal(read._tensors()[name], tensor)


def test_origin_and_primary_label_are_kept(tmp_path: Path) -> None:
    data = Features.from_arrays(Z, Y, test=0.4, session=[1, 1, 1, 1, 2, 2]).with_label("session")
    data = Features(
        data.train, data.test, data.names, Origin("birds", "vit", "0a", "imagenet", "x")
    )
    data.save(str(tmp_path / "no suffix"))
    read = load_features(str(tmp_path / "no suffix"))
    assert (read.label, read.n_classes) == ("session", 2)
    assert read.origin == data.origin
    assert load_features(str(tmp_path / "no suffix"), label="y").n_classes == 3


def test_unit_rows_are_told_of_by_their_origin_and_by_heads_that_learn_them() -> None:
    third = (Z[:3], {"y": Y[:3]})
    made, names = assemble({"train": (Z, {"y": Y}), "validation": third, "test": third})
    data = Features.of_splits(made, names, Origin("d", "backbone", normalisation="authors"))
    unit = data.unit_rows()
    assert unit.made_by == {"backbone": "backbone", "normalisation": "authors, rows of length 1"}
    for name, split in unit.splits.items():
        expected = torch.nn.functional.normalize(data.splits[name].z)
        torch.testing.assert_close(split.z, expected)
        assert split.labels == data.splits[name].labels
    assert unit.fingerprint != data.fingerprint
    with pytest.raises(DataError, match="rows of length 1"):
        refuse_others(data.made_by, unit.made_by)


def test_the_label_to_learn_must_be_in_both_splits() -> None:
    data = Features.from_arrays(Z, Y, test=TEST, session=Y)
    with pytest.raises(UnknownNameError, match="unknown label column 'session'; there are: y"):
        data.with_label("session")


def test_unknown_names_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'cifar100'\?.*the path of a file"):
        load_features("cifar_100")
    with pytest.raises(UnknownNameError, match="unknown label column 'corse'; did you mean 'coar"):
        load_features("cifar100", label="corse")
    with pytest.raises(MissingFileError, match="no such file"):
        load_features("mine.safetensors")
    with pytest.raises(MissingFileError):
        load_features(tmp_path)


def test_a_file_that_lacks_a_part(tmp_path: Path) -> None:
    metadata = {"label": "y", "names": {"y": ["a"]}, "origin": {}, "fingerprint": "0"}
    tensors = {"train.z": torch.zeros(1, 1), "train.y": torch.tensor([0])}
    write_tensors(tmp_path / "a", "features", tensors, metadata)
    with pytest.raises(FileFormatError, match="lacks a part of a features file"):
        load_features(tmp_path / "a")
    write_tensors(tmp_path / "a", "features", tensors, {})
    with pytest.raises(FileFormatError, match="lacks a part of a features file"):
        load_features(tmp_path / "a")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells memory on Linux")
def test_learning_by_slices_keeps_a_file_out_of_memory(tmp_path: Path) -> None:
    def own_memory() -> int:
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) // 1024

    n = 50_000
    z = torch.ones(n, 256)  # 51 MB
    y = torch.zeros(n, dtype=torch.int64)
    part = FeatureSet(z[:1], {"y": y[:1]})
    Features(FeatureSet(z, {"y": y}), part, {"y": ("a",)}).save(tmp_path / "a")
    del z, part
    before = own_memory()
    train = load_features(tmp_path / "a").train
    total = sum(train.z[i : i + 1000].double().sum() for i in range(0, n, 1000))
    assert total == n * 256
    assert own_memory() - before < 25
