"""Every kind of table that people have, written by the libraries that they have."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from pyarrow import feather, parquet
from safetensors.numpy import save_file

import lastlayer as ll
from lastlayer.data.from_tables import import_features
from lastlayer.errors import (
    ArgumentError,
    DataError,
    DrawnTestWarning,
    FileFormatError,
    LabelError,
    LastLayerError,
    MissingFileError,
    OptionError,
    ShapeError,
    UnknownNameError,
)

N, H = 12, 11
Z = np.random.default_rng(0).normal(size=(N, H)).astype(np.float32)
Y = ["owl", "emu", "ibis"] * 4
SPLIT = ["train"] * 6 + ["test"] * 3 + ["validation"] * 3
WIDE = {f"z_{i}": Z[:, i] for i in range(H)}


def wide() -> pd.DataFrame:
    return pd.DataFrame({"id": range(N), **WIDE, "species": Y})


def nested() -> pd.DataFrame:
    return pd.DataFrame({"z": list(Z), "species": Y, "id": range(N)})


def save_arrow(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def save_stream(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".feather": lambda frame, path: frame.to_feather(path),
    ".arrow": save_arrow,
    ".ipc": save_stream,
    ".jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
}


def assert_all_there(data: ll.Features, atol: float = 0.0) -> None:
    """Find every row with its own label, whichever split it went to."""
    rows = torch.cat([split.z for split in data.splits.values()]).numpy()
    codes = torch.cat([split.y for split in data.splits.values()]).tolist()
    assert len(rows) == N
    for z, label in zip(Z, Y, strict=True):
        place = int(np.abs(rows - z).sum(axis=1).argmin())
        np.testing.assert_allclose(rows[place], z, atol=atol)
        assert data.names["species"][codes[place]] == label


@pytest.mark.parametrize("embedding", ["z_*", "z_", "z_0:z_10", None])
@pytest.mark.parametrize("suffix", WRITERS)
def test_a_column_for_each_number(tmp_path: Path, suffix: str, embedding: str | None) -> None:
    WRITERS[suffix](wide(), tmp_path / f"birds{suffix}")
    said: list[str] = []
    data = import_features(tmp_path / f"birds{suffix}", embedding, "species", say=said.append)
    assert_all_there(data, atol=1e-6)
    assert said[0] == "embedding: 11 columns z_0 … z_10; label: 'species'"
    assert said[1].startswith("left out columns id")
    assert said[2] == "drew 20 % of each class as test (seed 0), since there was no split"


@pytest.mark.parametrize("suffix", [s for s in WRITERS if s not in (".csv", ".tsv")])
def test_a_column_of_lists(tmp_path: Path, suffix: str) -> None:
    WRITERS[suffix](nested(), tmp_path / f"birds{suffix}")
    assert_all_there(import_features(tmp_path / f"birds{suffix}", None, "species"), atol=1e-6)


def test_lists_written_as_text(tmp_path: Path) -> None:
    frame = nested().assign(z=[json.dumps(z.tolist()) for z in Z])
    frame.to_csv(tmp_path / "birds.csv", index=False)
    assert_all_there(import_features(tmp_path / "birds.csv", "z", "species"), atol=1e-6)
    nested().to_csv(tmp_path / "numpy.csv", index=False)  # [0.1 0.2], cut off with dots
    with pytest.raises(DataError, match=r"'z' must hold numbers, or lists such as \[0\.1"):
        import_features(tmp_path / "numpy.csv", "z", "species")


def test_columns_in_another_order_are_taken_by_their_numbers(tmp_path: Path) -> None:
    wide()[sorted(wide().columns)].to_csv(tmp_path / "a.csv", index=False)  # z_1, z_10, z_2
    assert_all_there(import_features(tmp_path / "a.csv", "z_", "species"), atol=1e-6)


@pytest.mark.parametrize("names", [("z_train", "y_train"), ("z", "y"), (None, None)])
@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt", ".npy"])
def test_arrays_with_splits_by_name(
    tmp_path: Path, suffix: str, names: tuple[str | None, str | None]
) -> None:
    codes = np.arange(N) % 3
    arrays: dict[str, Any] = {}
    parts = (("train", slice(0, 6)), ("test", slice(6, 9)), ("val", slice(9, 12)))
    for split, rows in parts:
        arrays |= {f"z_{split}": Z[rows], f"y_{split}": codes[rows]}
    path = tmp_path / f"birds{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    elif suffix == ".pt":
        torch.save({name: torch.from_numpy(a.copy()) for name, a in arrays.items()}, path)
    elif suffix == ".npy":
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
        path = tmp_path / "z_train.npy"
    else:
        save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, path)
    said: list[str] = []
    data = import_features(path, *names, say=said.append)
    for split, rows in (
        ("train", slice(0, 6)),
        ("test", slice(6, 9)),
        ("validation", slice(9, 12)),
    ):
        assert np.array_equal(data.splits[split].z.numpy(), Z[rows])
        assert data.splits[split].y.tolist() == codes[rows].tolist()
    assert said[-1] == "used its splits as they are: 6 train, 3 test, 3 validation"
    data.save(tmp_path / "made.safetensors")
    again = ll.load_features(tmp_path / "made.safetensors")
    assert repr(again) == "Features(6 train, 3 test, 3 validation, 11 features, labels: y (3))"
    assert again.fingerprint == data.fingerprint
    assert again.with_label("y").validation is not None


@pytest.mark.parametrize("form", ["{}_train", "{}.train", "train_{}", "training-{}", "TRAIN/{}"])
def test_other_ways_to_name_splits(tmp_path: Path, form: str) -> None:
    def named(column: str, split: str) -> str:
        return form.format(column).replace("train", split).replace("TRAIN", split.upper())

    held = {named("X", "train"): Z[:8], named("y", "train"): np.array(Y[:8])}
    held |= {named("X", "test"): Z[8:], named("y", "test"): np.array(Y[8:])}
    np.savez(tmp_path / "a.npz", **{name.replace("testing", "test"): a for name, a in held.items()})
    data = import_features(tmp_path / "a.npz")
    assert (len(data.train), len(data.test)) == (8, 4)
    assert data.label == "y"


def test_a_test_set_without_labels_is_not_ignored(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", z_train=Z[:8], z_test=Z[8:], y_train=Y[:8])
    with pytest.raises(OptionError, match="has no labels 'y' for 'z_test'"):
        import_features(tmp_path / "a.npz", "z_train", "y_train")


def test_a_split_column_with_validation(tmp_path: Path) -> None:
    wide().assign(split=SPLIT).to_csv(tmp_path / "a.csv", index=False)
    said: list[str] = []
    data = import_features(tmp_path / "a.csv", "z_", "species", say=said.append)
    assert {name: len(split) for name, split in data.splits.items()} == {
        "train": 6, "test": 3, "validation": 3,
    }  # fmt: skip
    assert said[-1] == "used column 'split' as the split: 6 train, 3 test, 3 validation"
    wide().assign(split=["train", "dev"] * 6).to_csv(tmp_path / "b.csv", index=False)
    data = import_features(tmp_path / "b.csv", "z_", "species", say=said.append)
    assert (len(data.train), len(data.test), data.validation) == (6, 6, None)
    assert said[-1] == "took the validation set as test set, since there was no other"
    wide().assign(split=["a", "b"] * 6).to_csv(tmp_path / "c.csv", index=False)
    import_features(tmp_path / "c.csv", "z_", "species", say=said.append)
    assert "took column 'split' for no split: it says a" in said


def test_a_test_set_in_a_file_of_its_own(tmp_path: Path) -> None:
    wide()[:6].to_csv(tmp_path / "birds_train.csv", index=False)
    wide()[6:9].to_parquet(tmp_path / "birds_test.parquet")
    wide()[9:].to_csv(tmp_path / "birds_test.csv", index=False)
    said: list[str] = []
    data = import_features(
        tmp_path / "birds_train.csv",
        "z_",
        "species",
        test=tmp_path / "birds_test.parquet",
        validation=tmp_path / "birds_test.csv",
        say=said.append,
    )
    assert_all_there(data, atol=1e-6)
    assert "used its splits as they are: 6 train, 3 test, 3 validation" in said
    import_features(tmp_path / "birds_train.csv", "z_", "species", test=0.5, say=said.append)
    assert said[-1].startswith("did not use birds_test.csv, which lies beside it")
    np.savez(tmp_path / "a.npz", z_train=Z, y_train=Y, z_test=Z, y_test=Y)
    with pytest.raises(OptionError, match="splits of its own"):
        import_features(tmp_path / "a.npz", test=tmp_path / "birds_test.csv")
    with pytest.raises(OptionError, match="there is a test set already"):
        import_features(tmp_path / "a.npz", test=0.5)


def hugging_face(folder: Path, frame: pd.DataFrame, names: list[str] | None = None) -> None:
    """Write what save_to_disk of datasets writes; tests_extras does it with datasets itself."""
    folder.mkdir(parents=True)
    half = len(frame) // 2
    for place, rows in enumerate((frame[:half], frame[half:])):
        save_stream(rows, folder / f"data-0000{place}-of-00002.arrow")
    files = [{"filename": f"data-0000{place}-of-00002.arrow"} for place in range(2)]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_split": None}))
    features = {"z": {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"}}
    features["species"] = {"names": names, "_type": "ClassLabel"} if names else {}  # type: ignore[dict-item]
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def test_a_folder_of_hugging_face(tmp_path: Path) -> None:
    hugging_face(tmp_path / "plain", nested())
    assert_all_there(import_features(tmp_path / "plain", None, "species"))
    names = sorted(set(Y))
    coded = nested().assign(species=[names.index(y) for y in Y])
    hugging_face(tmp_path / "dict" / "train", coded[:8], names)
    hugging_face(tmp_path / "dict" / "test", coded[8:], names)
    hugging_face(tmp_path / "dict" / "unsupervised", coded, names)
    splits = {"splits": ["train", "test", "unsupervised"]}
    (tmp_path / "dict" / "dataset_dict.json").write_text(json.dumps(splits))
    said: list[str] = []
    data = import_features(tmp_path / "dict", "z", "species", say=said.append)
    assert_all_there(data)
    assert (len(data.train), len(data.test)) == (8, 4)
    assert "left out 'unsupervised', which is neither train, validation nor test" in said


def test_a_folder_that_leads_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"has no state\.json"):
        import_features(tmp_path)
    hugging_face(tmp_path / "a", nested())
    for names in (["../secret.arrow"], [None], []):
        files = [{"filename": name} for name in names]
        (tmp_path / "a" / "state.json").write_text(json.dumps({"_data_files": files}))
        with pytest.raises(FileFormatError, match="must name the data files"):
            import_features(tmp_path / "a")
    for content in ("[]", "{", "\xff"):
        (tmp_path / "a" / "state.json").write_text(content)
        with pytest.raises(FileFormatError):
            import_features(tmp_path / "a")


def test_labels_in_a_text_file_beside_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "birds.npy", Z)
    (tmp_path / "labels.txt").write_text("\n".join(Y) + "\n")
    data = import_features(tmp_path / "birds.npy", "birds", "labels", test=0.5)
    assert data.names["labels"] == ("emu", "ibis", "owl")
    (tmp_path / "labels.txt").rename(tmp_path / "notes.txt")
    with pytest.raises(OptionError, match="name the column to learn with --label"):
        import_features(tmp_path / "birds.npy", "birds")


def test_nested_dictionaries_of_tensors(tmp_path: Path) -> None:
    z = torch.from_numpy(Z)
    held = {"train": {"z": z[:8], "y": Y[:8]}, "test": {"z": z[8:], "y": Y[8:]}}
    torch.save(held, tmp_path / "a.pt")
    data = import_features(tmp_path / "a.pt")
    assert torch.equal(data.test.z, z[8:])
    assert data.names["y"] == ("emu", "ibis", "owl")
    for wrong in (z, [z], {"model": torch.nn.Linear(2, 2)}):
        torch.save(wrong, tmp_path / "a.pt")
        with pytest.raises(FileFormatError, match="must hold a dictionary of tensors"):
            import_features(tmp_path / "a.pt", "z", "y")


def test_our_own_files_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    ll.Features.from_arrays(Z, Y).save(path)
    with pytest.raises(FileFormatError, match="is already a lastlayer file"):
        import_features(path, "train.z", "y")


def test_text_that_looks_like_numbers_stays_as_it_is(tmp_path: Path) -> None:
    frame = wide().assign(code=["007", "7", "10"] * 4, day=[10, 9, 2] * 4)
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = import_features(tmp_path / "a.csv", "z_", "code", ["day"])
    assert data.names == {"code": ("007", "10", "7"), "day": ("2", "9", "10")}


def test_wrong_columns_are_answered_with_the_few_that_are_near(tmp_path: Path) -> None:
    many = pd.DataFrame({f"feature_{i}": Z[:, 0] for i in range(387)}).assign(species=Y)
    many.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(UnknownNameError) as error:
        import_features(tmp_path / "a.parquet", "feature_", "spieces")
    assert "did you mean 'species'?" in str(error.value)
    with pytest.raises(UnknownNameError) as error:
        import_features(tmp_path / "a.parquet", "feature-7", "species")
    assert len(str(error.value)) < 200
    assert "nearest of 388: feature_7" in str(error.value)


BAD: dict[str, tuple[pd.DataFrame, type[Exception], str]] = {
    "text": (
        wide().assign(z_3=["1.5"] * 4 + ["n/a"] + ["2"] * 7),
        DataError,
        "column 'z_3' must hold numbers, got 'n/a' in row 4",
    ),
    "null": (
        wide().assign(z_4=[1.0] * 7 + [None] + [2.0] * 4),
        DataError,
        "every row of 'z_4' must have a value, got 1 missing, the first in row 7",
    ),
    "no label": (
        wide().assign(species=[*Y[:5], None, *Y[6:]]),
        DataError,
        "every row of 'species' must have a value, got 1 missing, the first in row 5",
    ),
    "infinity": (
        wide().assign(z_9=[1.0, np.inf] * 6),
        DataError,
        "column 'z_9' of .* must be finite.*in row 1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values_are_named_by_row_and_column(tmp_path: Path, case: str) -> None:
    frame, error, message = BAD[case]
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(error, match=message):
        import_features(tmp_path / "a.csv", "z_", "species")


def test_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [{"z": [1.0, 2.0], "y": 1}, {"z": [1.0, 3.0], "y": "1"}, {"z": [2.0], "y": "1"}]
    path.write_text("\n".join(map(json.dumps, lines[:2])))
    with pytest.raises(
        LabelError, match="labels 'y' must be of one type, got int in row 0 and str in row 1"
    ):
        import_features(path, "z", "y")
    path.write_text("\n".join(map(json.dumps, lines[1:])))
    with pytest.raises(
        ShapeError, match="lists in 'z' must be of one length, got 2 numbers in row 0 and 1 in row"
    ):
        import_features(path, "z", "y")
    path.write_text('{"z": [1.0')
    with pytest.raises(FileFormatError):
        import_features(path, "z", "y")


def test_duplicate_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("z_0,z_1,y,y\n1,2,a,b\n")
    with pytest.raises(FileFormatError, match=r"a\.csv has two columns named 'y'"):
        import_features(tmp_path / "a.csv", "z_", "y")
    twice = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["z_0", "z_0", "y"])
    with pytest.raises(DataError, match="two columns named 'z_0'"):
        ll.Features.from_frame(twice, "z_", "y")


def test_feather_of_the_first_version(tmp_path: Path) -> None:
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    with pytest.raises(FileFormatError, match="of version 1, which is obsolete"):
        import_features(tmp_path / "a.feather", "z", "y")


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_path_is_never_a_pattern(tmp_path: Path, suffix: str) -> None:
    WRITERS[suffix](wide(), tmp_path / f"a1{suffix}")
    with pytest.raises(MissingFileError):
        import_features(tmp_path / f"a[1]{suffix}", "z_", "species")
    WRITERS[suffix](wide()[:6], tmp_path / f"a[1]{suffix}")
    data = import_features(tmp_path / f"a[1]{suffix}", "z_", "species")
    assert len(data.train) + len(data.test) == 6


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("content", [b"", b"\x00" * 40, b'{"', b"\xff\xfe,\n1,2"])
def test_damaged_files_end_in_our_errors(tmp_path: Path, suffix: str, content: bytes) -> None:
    (tmp_path / f"a{suffix}").write_bytes(content)
    with pytest.raises(LastLayerError):
        import_features(tmp_path / f"a{suffix}", "z", "y")


class Foreign:
    """A frame of a library that nobody knows, with the Arrow interface."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "make",
    [
        pd.DataFrame,
        pl.from_pandas,
        pa.Table.from_pandas,
        Foreign,
        lambda f: pl.from_pandas(f).lazy(),
    ],
)
@pytest.mark.parametrize("frame", [wide(), nested()], ids=["wide", "nested"])
def test_frames(make: Callable[[pd.DataFrame], Any], frame: pd.DataFrame) -> None:
    embedding = "z" if "z" in frame else "z_*"
    assert_all_there(ll.Features.from_frame(make(frame), embedding, "species", test=0.2))


def test_a_frame_with_a_split() -> None:
    frame = nested().assign(split=SPLIT, species=pd.Categorical(Y))
    data = ll.Features.from_frame(frame, "z", "species", ["id"])
    assert [len(split) for split in data.splits.values()] == [6, 3, 3]
    assert list(data.names) == ["species", "id"]


def test_a_draw_from_a_frame_is_said() -> None:
    with pytest.warns(DrawnTestWarning, match=r"drew 20 % of each class as test \(seed 0\)"):
        data = ll.Features.from_frame(nested(), "z", "species")
    asked = ll.Features.from_frame(nested(), "z", "species", test=0.2)
    assert data.fingerprint == asked.fingerprint


def test_what_is_no_frame() -> None:
    for wrong in (None, 3, [[1.0]], {"z": [1.0]}, Z):
        with pytest.raises(ArgumentError, match="frame must be one of pandas or polars"):
            ll.Features.from_frame(wrong, "z", "y")
    mixed = pd.DataFrame({"z": list(Z), "y": [1, "a"] * 6})
    with pytest.raises(LabelError, match="of one type, got text in row 1 and an int in row 0"):
        ll.Features.from_frame(mixed, "z", "y")
    beside = mixed.assign(label=["b", "c"] * 6)  # what is not asked for is nobody's concern
    assert ll.Features.from_frame(beside, "z", "label", test=0.5).names == {"label": ("b", "c")}


def test_large_files_of_parquet_and_feather_by_pyarrow(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(nested())
    parquet.write_table(table, tmp_path / "a.parquet", compression="zstd")
    feather.write_feather(table, tmp_path / "a.feather", compression="lz4")
    for name in ("a.parquet", "a.feather"):
        assert_all_there(import_features(tmp_path / name, "z", "species"))
