"""Embeddings from other programs: .npz and .parquet."""

from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from lastlayer.data.from_tables import import_features
from lastlayer.data.rows import read_rows
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
Y = ["b", "a", "b", "a", "b", "a"]
SPLIT = ["train", "train", "test", "test", "train", "train"]


def write(path: Path, **columns: object) -> Path:
    """Write the same columns to either kind of file."""
    if path.suffix == ".npz":
        np.savez(path, **{name: np.asarray(values) for name, values in columns.items()})
    else:
        lists = {
            name: list(values) if isinstance(values, np.ndarray) else values
            for name, values in columns.items()
        }
        pl.DataFrame(lists).write_parquet(path)
    return path


@pytest.fixture(params=[".npz", ".parquet"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / f"birds{request.param}"


def test_a_split_may_be_in_capitals(path: Path) -> None:
    write(path, z=Z, y=Y, part=["Train", "train", "TEST", "Test", "TRAIN", "train"])
    data = import_features(path, "z", "y", split="part")
    assert (len(data.train), len(data.test)) == (4, 2)


def test_a_split_column(path: Path) -> None:
    write(path, emb=Z, species=Y, day=[1, 1, 9, 9, 10, 10], part=SPLIT)
    data = import_features(path, "emb", "species", ["day"], split="part")
    assert torch.equal(data.train.z.double(), torch.tensor(Z[[0, 1, 4, 5]]))
    assert torch.equal(data.test.z.double(), torch.tensor(Z[2:4]))
    assert data.train.z.dtype == torch.float32
    assert data.train.y.tolist() == [1, 0, 1, 0]
    assert data.names == {"species": ("a", "b"), "day": ("1", "9", "10")}
    assert data.test.labels["day"].tolist() == [1, 1]
    assert data.label == "species"
    assert data.origin.dataset == "birds"
    assert data.origin.made == (
        "lastlayer import FILE --embedding emb --label species --domain day --split part --out FILE"
    )


def test_a_drawn_split(path: Path) -> None:
    write(path, emb=Z, species=Y)
    data = import_features(path, "emb", "species")
    assert (len(data.train), len(data.test)) == (4, 2)
    assert data.test.y.sort().values.tolist() == [0, 1]
    assert data.fingerprint == import_features(path, "emb", "species", test=0.2).fingerprint
    draws = {import_features(path, "emb", "species", seed=s).fingerprint for s in range(9)}
    assert len(draws) > 1
    assert len(import_features(path, "emb", "species", test=0.6).test) == 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_features_stay_as_they_are_in_npz(tmp_path: Path, dtype: type) -> None:
    path = write(tmp_path / "a.npz", z=Z.astype(dtype), y=Y)
    assert import_features(path, "z", "y").train.z.numpy().dtype == dtype


def test_columns_of_many_types(tmp_path: Path) -> None:
    table = {
        "z": pl.Series(Z.astype(np.float32), dtype=pl.Array(pl.Float32, 2)),
        "date": [date(2024, 1, 1 + i // 2) for i in range(6)],
        "category": pl.Series(Y, dtype=pl.Categorical),
        "flag": [True, False] * 3,
        "whole": [10.0, 2.0] * 3,
        "point": [0.5, 0.25] * 3,
        "small": pl.Series([3, 1] * 3, dtype=pl.UInt8),
    }
    pl.DataFrame(table).write_parquet(tmp_path / "a.parquet")
    columns = ["date", "flag", "whole", "point", "small"]
    data = import_features(tmp_path / "a.parquet", "z", "category", columns)
    assert data.names == {
        "category": ("a", "b"),
        "date": ("2024-01-01", "2024-01-02", "2024-01-03"),
        "flag": ("false", "true"),
        "whole": ("2", "10"),
        "point": ("0.25", "0.5"),
        "small": ("1", "3"),
    }


def test_what_is_not_named_is_not_read(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}] * 6, dtype=object)
    np.savez(tmp_path / "a.npz", z=Z, y=np.array(Y), objects=objects, allow_pickle=True)
    assert len(import_features(tmp_path / "a.npz", "z", "y").train) == 4
    with pytest.raises(FileFormatError, match="'objects' holds Python objects"):
        import_features(tmp_path / "a.npz", "z", "objects")


def test_objects_are_refused_with_what_to_save_instead(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, z=Z, y=np.array(Y, dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError) as raised:
        import_features(path)
    assert str(raised.value) == (
        f"arrays of {path} must hold numbers or text, but 'y' holds Python objects: save it as "
        "text, y.astype(str), or as numbers, y.astype(float)"
    )
    np.savez(path, z=Z, y=np.zeros(len(Z), dtype=[("a", int), ("b", int)]))
    with pytest.raises(FileFormatError, match="'y' holds records: save each field as an array"):
        import_features(path)


@pytest.mark.parametrize("missing", ["embedding", "label", "domains", "split"])
def test_a_missing_column_names_those_there_are(path: Path, missing: str) -> None:
    write(path, emb=Z, species=Y, day=Y, part=SPLIT)
    right = {"embedding": "emb", "label": "species", "domains": ["day"], "split": "part"}
    wrong = right | {missing: ["speciess"] if missing == "domains" else "speciess"}
    with pytest.raises(
        UnknownNameError,
        match=r"unknown column 'speciess'; did you mean 'species'\? there are: emb, species, day,",
    ):
        import_features(path, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"z": Z * np.nan}, DataError, "NaN or infinity in row 0"),
        ({"z": Z[:, 0]}, ShapeError, r"features must have shape \(n, h\), got \(6,\)"),
        ({"y": [0.0, 1.0, 0.0, 1.0, 0.0, float("nan")]}, LabelError, "'y' has NaN"),
        ({"s": ["train"] * 6}, DataError, "column 's' must say 'train', and 'test' or .*, got"),
        ({"s": ["train", "test", "late"] * 2}, DataError, "'late', 'test', 'train'"),
    ],
)
def test_bad_columns(path: Path, columns: dict[str, object], error: type, message: str) -> None:
    write(path, **({"z": Z, "y": Y, "s": SPLIT} | columns))
    with pytest.raises(error, match=message):
        import_features(path, "z", "y", split="s")


def test_columns_of_another_length(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", z=Z, y=Y[:5], one=np.array(1))
    with pytest.raises(ShapeError, match=r"column 'y' of .* must have 6 values as 'z' has, got 5"):
        import_features(path, "z", "y")
    with pytest.raises(
        ShapeError, match=r"column 'one' of .* must have 6 values as 'z' has, got 1"
    ):
        import_features(path, "z", "one")


def test_missing_values_and_ragged_lists(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"z": [[1.0], [1.0, 2.0]], "y": [1, 2], "gap": ["a", None]}).write_parquet(path)
    with pytest.raises(
        ShapeError, match=r"lists in 'z' must be of one length, got 1 .* in row 0 and 2 in row 1"
    ):
        import_features(path, "z", "y")
    with pytest.raises(DataError, match="every row of 'gap'"):
        import_features(path, "y", "gap")
    pl.DataFrame({"z": [[1.0], [None]], "y": [1, 1]}).write_parquet(path)
    with pytest.raises(
        DataError, match="every place of 'z' must hold a number, but row 1 lacks one"
    ):
        import_features(path, "z", "y", test=0.5)
    pl.DataFrame({"z": [["a"], ["b"]], "y": [1, 1]}).write_parquet(path)
    with pytest.raises(DataError, match="features must be numbers"):
        import_features(path, "z", "y", test=0.5)
    empty = {"z": pl.List(pl.Float32), "y": pl.Int64}
    pl.DataFrame(schema=empty).write_parquet(path)
    for embedding in ("z", "y"):
        with pytest.raises(DataError, match=r"a\.parquet has no rows"):
            import_features(path, embedding, "y")


@pytest.mark.parametrize(
    "labels",
    [pl.Series([1, 2] * 3, dtype=pl.Duration("us")), pl.Series([b"\xff", b"a"] * 3)],
    ids=["duration", "binary"],
)
def test_labels_that_are_no_text(tmp_path: Path, labels: pl.Series) -> None:
    pl.DataFrame({"z": list(Z), "y": labels}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"'y' must hold numbers or text, got (Duration|Binary)"):
        import_features(tmp_path / "a.parquet", "z", "y")


def test_files_that_are_none(path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such file"):
        import_features(path, "z", "y")
    write(path, z=Z, y=Y)
    content = path.read_bytes()
    for damaged in (b"", b"hello", content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            import_features(path, "z", "y")


def test_a_damaged_array(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", z=Z, y=Y)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="damaged"):
        import_features(path, "z", "y")


def test_other_kinds_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(UnknownNameError, match=r"unknown type of table '\.xlsx'.*\.csv, \.tsv"):
        import_features(tmp_path / "a.xlsx", "z", "y")


def test_a_split_column_and_a_part_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a split column or a part to draw"):
        import_features(tmp_path / "a.npz", "z", "y", split="s", test=0.2)


@pytest.mark.parametrize("how", [{"label": "z_0"}, {"label": "y", "domains": ["z_1"]}])
def test_a_column_of_the_embedding_is_no_label(tmp_path, how):
    file = tmp_path / "few.csv"
    file.write_text("z_0,z_1,y\n" + "0.5,1.5,a\n0.25,0.75,b\n" * 5)
    with pytest.raises(OptionError, match=r"'z_\d' is part of the embedding \(z_0 to z_1\)"):
        import_features(file, **how)


def test_the_only_other_column_is_the_label_and_a_split_never_is(tmp_path: Path) -> None:
    z, path, said = [[0.0], [1.0], [2.0], [3.0]] * 2, tmp_path / "a.parquet", list[str]()
    split = ["train"] * 6 + ["test"] * 2
    pl.DataFrame({"z": z, "species": list("ab") * 4, "split": split}).write_parquet(path)
    data = import_features(path, say=said.append)
    assert data.label == "species"
    assert "label: 'species'" in said[0]
    birds = {"z": z, "species": list("ab") * 4, "day": range(8), "split": split}
    pl.DataFrame(birds).write_parquet(path)
    assert import_features(path, domains=["day"]).label == "species"
    with pytest.raises(OptionError, match=r"other columns of .* are species, day$"):
        import_features(path)
    with pytest.raises(OptionError, match="name the column to learn with --label"):
        read_rows(write(path, z=np.array(z), id=range(8)))
