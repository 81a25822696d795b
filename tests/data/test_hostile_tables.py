"""Tables from strangers: what is damaged, odd or made to fill the memory is refused in one line."""

import os
import struct
import zipfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from lastlayer.data.from_tables import import_features
from lastlayer.data.tables.parquet_footer import read_footer
from lastlayer.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    LabelError,
    LastLayerError,
    MissingFileError,
)

Z = np.arange(12.0).reshape(6, 2)
Y = ["b", "a", "b", "a", "b", "a"]


def npz(path: Path, **arrays: object) -> Path:
    np.savez_compressed(path, **{name: np.asarray(value) for name, value in arrays.items()})
    return path


def parquet(path: Path, **columns: object) -> Path:
    pl.DataFrame({"z": list(Z), "y": Y} | columns).write_parquet(path)
    return path


def raw_npz(path: Path, header: bytes, data: bytes = b"") -> Path:
    """Write an archive whose array z has a header of our own making."""
    npz(path, y=Y)
    with zipfile.ZipFile(path, "a") as archive:
        length = struct.pack("<H", len(header))
        archive.writestr("z.npy", b"\x93NUMPY\x01\x00" + length + header + data)
    return path


@pytest.mark.parametrize("name", ["birds[1].parquet", "b*.parquet", "birds?.parquet", "~.parquet"])
def test_a_path_names_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    parquet(Path("birds1.parquet"), y=["other"] * 6)
    parquet(Path("birds2.parquet"), y=["other"] * 6)
    with pytest.raises(MissingFileError, match="no such file"):
        import_features(name, "z", "y")
    with Path(name).open("wb") as file:
        pl.DataFrame({"z": list(Z), "y": Y}).write_parquet(file)
    assert import_features(name, "z", "y").names["y"] == ("a", "b")


def test_folders_in_a_path_are_no_columns(tmp_path: Path) -> None:
    (tmp_path / "y=owl").mkdir()
    path = parquet(tmp_path / "y=owl" / "a.parquet")
    assert import_features(path, "z", "y").names["y"] == ("a", "b")


def test_encrypted_archives(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", z=Z, y=Y)
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.find(signature)
        while place >= 0:
            content[place + flags] |= 1
            place = content.find(signature, place + 1)
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.npz is not one, or is damaged: .*encrypted"):
        import_features(path, "z", "y")


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (6, 2",  # a TokenError of numpy
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
        b"{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-6, 2), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (6,), }",
        b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (6,), }",
        b"__import__('os').system('touch hacked')",
        b"(" * 5000,
        b"\xff\xfe",
    ],
)
def test_headers_that_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    path = raw_npz(tmp_path / "a.npz", header, bytes(96))
    with pytest.raises(FileFormatError, match=r"a\.npz"):
        import_features(path, "z", "y")
    assert os.listdir(tmp_path) == ["a.npz"]


def test_unknown_versions_of_an_array(tmp_path: Path) -> None:
    npz(tmp_path / "a.npz", y=Y)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("z.npy", b"\x93NUMPY\x09\x00" + bytes(100))
    with pytest.raises(FileFormatError, match="damaged"):
        import_features(tmp_path / "a.npz", "z", "y")


def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (6, 8000000), }"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("z.npy", start + bytes(384_000_000))
    with pytest.raises(FileFormatError, match=r"z of .* would take 366 MiB in memory"):
        import_features(path, "z", "z")


@pytest.mark.parametrize(
    "fat",
    [{"z": [[0.0] * 2] * 2000 + [[0.0] * 9000] * 200}, {"y": ["owl"] * 2000 + ["x" * 9999] * 200}],
)
def test_what_grows_late_in_a_parquet_file_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fat: dict[str, object]
) -> None:
    monkeypatch.setattr("lastlayer.core.files.FLOOR", 1 << 20)
    path = tmp_path / "a.parquet"
    small = {"z": [[0.0] * 2] * 2200, "y": ["owl"] * 2200}
    pl.DataFrame(small | fat).write_parquet(path, row_group_size=500)
    with pytest.raises(FileFormatError, match=r"[yz] of .* would take [\d,]+ MiB in memory"):
        import_features(path, "z", "y")


@pytest.mark.parametrize(
    "footer", [b"", b"\x19", b"\x1c" * 100, b"\xff" * 100, b"\x49" + b"\xff" * 90]
)
def test_a_footer_that_is_none(tmp_path: Path, footer: bytes) -> None:
    content = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.parquet"):
        import_features(tmp_path / "a.parquet", "z", "y")


def test_a_footer_counts_what_columns_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = {"z": np.zeros((900, 5)), "y": [f"bird {n}" for n in range(900)], "n": range(900)}
    pl.DataFrame(table).write_parquet(path, row_group_size=100)
    whole = read_footer(path).unpacked_size(["z", "y", "n"])
    parts = [read_footer(path).unpacked_size([name]) for name in table]
    assert whole == sum(parts)
    assert parts[0] >= 900 * 5 * 8
    assert all(part < 40 * 900 * 5 for part in parts)
    assert read_footer(path).unpacked_size([]) == 0


COLUMNS = {
    "lists": (pl.List(pl.Float32), [[1.0, 2.0, 3.0]] * 4, 3),
    "arrays": (pl.Array(pl.Float64, 3), [[1.0, 2.0, 3.0]] * 4, 3),
    "numbers": (pl.Float32, [1.0] * 4, None),
    "lists of one": (pl.List(pl.Float32), [[1.0]] * 4, None),
    "empty lists": (pl.List(pl.Float32), [[]] * 4, None),
    "a row that is missing": (pl.List(pl.Float32), [[1.0, 2.0, 3.0], None] * 2, None),
    "texts": (pl.List(pl.String), [["a", "b", "c"]] * 4, None),
    "no rows": (pl.List(pl.Float32), [], None),
    "structures": (pl.Struct({"a": pl.Int8, "b": pl.Int8}), [{"a": 1, "b": 2}] * 4, None),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_a_footer_knows_how_wide_vectors_are(tmp_path: Path, case: str) -> None:
    """And says nothing where it cannot: whoever asks then reads a row."""
    dtype, values, width = COLUMNS[case]
    path = tmp_path / "a.parquet"
    pl.DataFrame({"z": pl.Series("z", values, dtype), "y": [1] * len(values)}).write_parquet(path)
    assert read_footer(path).width("z") == width
    assert read_footer(path).width("x") is None


def test_a_footer_is_believed_if_all_row_groups_agree(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    z = pl.Series("z", [[1.0, 2.0]] * 4 + [[1.0, 2.0, 3.0]] * 4, pl.List(pl.Float32))
    z.to_frame().write_parquet(path, row_group_size=4)
    assert read_footer(path).row_groups == [4, 4]
    assert read_footer(path).width("z") is None


def test_a_parquet_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    z = pl.zeros(40_000_000, eager=True).rename("z")
    pl.DataFrame({"z": z}).write_parquet(path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(FileFormatError, match=r"z of .* would take 305 MiB in memory"):
        import_features(path, "z", "z")


def test_one_long_label_does_not_widen_all(tmp_path: Path) -> None:
    """Numpy's text is as wide as the longest everywhere: a megabyte would ask for 15 GiB."""
    labels = ["a", "b"] * 1999 + ["a", "b" * 1_000_000]
    table = pl.DataFrame({"z": [[float(i)] for i in range(4000)], "y": labels})
    table.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(LabelError, match="at most 1000 characters, got one of 1000000: bbb"):
        import_features(tmp_path / "a.parquet", "z", "y")
    with pytest.raises(DataError, match="column 'y' must say 'train', and 'test' or 'validation'"):
        import_features(tmp_path / "a.parquet", "z", "z", split="y")


def test_labels_that_differ_stay_apart(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", y=["a", "a\0", "a\n", "a", "a\0", "a\n"])
    data = import_features(path, "z", "y", test=0.5)
    assert data.names["y"] == ("a", r"a\x00", r"a\n")
    assert sorted(data.train.y.tolist() + data.test.y.tolist()) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_a_time_that_is_none_is_no_class(tmp_path: Path, kind: str, unit: str) -> None:
    times = np.array([1, 2, 1, 2, 1, 2]).astype(f"{kind}[{unit}]")
    path = npz(tmp_path / "a.npz", z=Z, y=times)
    assert len(import_features(path, "z", "y").names["y"]) == 2
    times[3] = np.array("NaT", dtype=times.dtype)
    with pytest.raises(LabelError, match="'y' lacks 1"):
        import_features(npz(path, z=Z, y=times), "z", "y")


@pytest.mark.parametrize(
    ("z", "message"),
    [
        (Z + 1j, "real numbers, got complex128"),
        (Z * 1e150, "within float32, got NaN or infinity in row 0"),
        (Z.astype("U4"), "numbers, got <U4"),
        (Z.astype("M8[s]"), "numbers, got datetime64"),
        (Z > 3, "real numbers, got torch.bool"),
    ],
    ids=["complex", "large", "text", "date", "bool"],
)
def test_features_that_are_none(tmp_path: Path, z: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        import_features(npz(tmp_path / "a.npz", z=z, y=Y), "z", "y")


def test_wide_and_foreign_numbers_are_read(tmp_path: Path) -> None:
    for z in (Z.astype(np.longdouble), Z.astype(">f4"), Z.astype(np.uint64)):
        data = import_features(npz(tmp_path / "a.npz", z=z, y=Y), "z", "y", test=0.5)
        assert data.train.z.dtype == torch.float32
        assert data.train.z.sum() + data.test.z.sum() == Z.sum()


def test_large_whole_numbers_and_decimals_are_labels(tmp_path: Path) -> None:
    columns = {
        "int": pl.Series([2**100, 2**100 + 1] * 3, dtype=pl.Int128),
        "decimal": pl.Series([Decimal("1.5"), Decimal("1.50")] * 3),
        "unsigned": pl.Series([2**63, 2**63 + 1] * 3, dtype=pl.UInt64),
    }
    path = parquet(tmp_path / "a.parquet", **columns)
    data = import_features(path, "z", "int", ["decimal", "unsigned"])
    assert [len(names) for names in data.names.values()] == [2, 1, 2]
    with pytest.raises(DataError, match="numbers, got object"):
        import_features(path, "int", "y")


@pytest.mark.parametrize("labels", [np.array([b"caf\xe9"] * 6), np.zeros(6, "V3"), Z + 1j])
def test_labels_that_are_neither_numbers_nor_text(tmp_path: Path, labels: object) -> None:
    with pytest.raises(LastLayerError):
        import_features(npz(tmp_path / "a.npz", z=Z, y=labels), "z", "y")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(FileFormatError, match="is a pipe or a device"):
        import_features(tmp_path / "a.npz", "z", "y")


@pytest.mark.parametrize(("embedding", "label"), [(2, "y"), ("z", 3), ("z", ["y"])])
def test_columns_are_named_by_text(tmp_path: Path, embedding: object, label: object) -> None:
    with pytest.raises(ArgumentError, match="the name of a column must be text"):
        import_features(npz(tmp_path / "a.npz", z=Z, y=Y), embedding, label)  # type: ignore[arg-type]
