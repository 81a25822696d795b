"""Shards are read some rows at a time, whatever their format, and verified all the same."""

from pathlib import Path

import numpy as np
import piles
import polars as pl
import pyarrow as pa
import pytest
import torch

import lastlayer as ll
from lastlayer.core.tensor_files import TensorStream
from lastlayer.data import shard_rows
from lastlayer.data.shard_list import Shard
from lastlayer.data.tables.named_arrays import open_npy
from lastlayer.data.tables.open_table import open_table
from lastlayer.data.tables.table import Table
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import FileFormatError, OptionError, ShapeError
from lastlayer.evaluate import shards as learned

Z, Y = piles.data()


def arrow(path: Path, file: bool) -> Path:
    vectors = pa.array([row.tolist() for row in Z], pa.list_(pa.float32()))
    table = pa.table({"z": vectors, "species": pa.array(list(Y)).dictionary_encode()})
    make = pa.ipc.new_file if file else pa.ipc.new_stream
    with make(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=170)
    return path


def table_of(kind: str, folder: Path) -> Table:
    if kind == "npy":
        np.save(folder / "z.npy", Z)
        return open_npy(folder / "z.npy", alone=True)
    if kind == "safetensors":
        piles.tensors(folder, pieces=1)
        return open_table(folder / "part-0.safetensors")[""]
    if kind.startswith("arrow"):
        return open_table(arrow(folder / "a.arrow", kind == "arrow file"))[""]
    piles.frame(Z, list(Y)).write_parquet(folder / "a.parquet", row_group_size=700)
    return open_table(folder / "a.parquet")[""]


@pytest.mark.parametrize("kind", ["parquet", "arrow file", "arrow stream", "npy", "safetensors"])
def test_a_table_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The same as at once, and never at once."""
    table = table_of(kind, tmp_path)
    column = next(name for name, dimensions in table.columns.items() if dimensions == 2)
    labels = [name for name in table.columns if name != column]
    whole = table.read([column], labels)
    monkeypatch.setattr(Table, "read", None)
    pieces = list(table.read_pieces([column], labels, 100))
    assert max(len(piece[column]) for piece in pieces) <= 100
    assert len(pieces) >= 30
    for name, values in whole.items():
        assert np.concatenate([piece[name] for piece in pieces]).tolist() == values.tolist()
    first = next(iter(table.read_pieces([column], [], 1, most=1)))
    assert first[column].tolist() == Z[:1].tolist()


def test_an_arrow_stream_that_is_cut_off(tmp_path: Path) -> None:
    path = arrow(tmp_path / "a.arrow", file=False)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    table = open_table(path)[""]
    with pytest.raises(FileFormatError, match=r"a\.arrow is cut off, damaged"):
        list(table.read_pieces(["z"], ["species"], 100))


def test_columns_of_another_length(tmp_path: Path) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415

    save_file({"z": torch.zeros(250, 3), "y": torch.zeros(200).long()}, tmp_path / "a.safetensors")
    table = open_table(tmp_path / "a.safetensors")[""]
    with pytest.raises(ShapeError, match=r"column 'y' of .* must have .* values as 'z' has, got"):
        list(table.read_pieces(["z"], ["y"], 100))


def test_a_file_of_ours_is_read_once_and_verified(tmp_path: Path) -> None:
    data = ll.Features.from_arrays(Z, list(Y), test=0.1)
    path = tmp_path / "a.safetensors"
    data.save(path)
    stream = TensorStream(path, "features")
    assert torch.equal(torch.cat(list(stream.rows("train.z", 77))), data.train.z)
    stream.verify()  # the labels and the test set, which were not read
    held = stream.held["test.y"]
    content = bytearray(path.read_bytes())
    content[held.begin] ^= 1
    path.write_bytes(bytes(content))
    stream = TensorStream(path, "features")
    list(stream.rows("train.z", 1000))
    with pytest.raises(FileFormatError, match="was altered after it was written"):
        stream.verify()


def test_few_rows_at_a_time(tmp_path: Path) -> None:
    """What is in memory depends on the size of a row, and not on that of a shard."""
    folder = piles.parquet(tmp_path / "shards", pieces=1)
    shard, selection = Shard.of(folder / "part-0.parquet"), Selection(label="species")
    about, _ = shard_rows.look_at(shard, selection)
    digest = shard.print_of("")
    assert about == shard_rows.About(piles.H, piles.N, numbers=False, print=digest)
    for width in (1, 768, 100_000_000):
        rows = shard_rows._rows_of(width)
        assert rows == 1 or 4 * width * rows <= shard_rows.BYTES
        assert rows <= shard_rows.MOST_ROWS
    pieces = list(shard_rows.read_shard(shard, selection, about))
    assert torch.equal(torch.cat([z for z, _ in pieces]), torch.from_numpy(Z))


@pytest.mark.parametrize("column", ["lists", "arrays", "numbers"])
def test_a_first_look_unpacks_no_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """Of lists of numbers the footer says how long they are; of many columns a row is read."""
    if column == "numbers":
        frame = pl.DataFrame({f"z{k}": Z[:, k] for k in range(piles.H)})
    else:
        frame = pl.DataFrame({"z": Z})
        frame = frame.cast(pl.List(pl.Float32)) if column == "lists" else frame
    frame.with_columns(species=pl.Series(list(Y))).write_parquet(tmp_path / "a.parquet")
    asked: list[list[str]] = []
    read = Table.read_pieces

    def noted(table: Table, numbers: list[str], *how: object, **more: object) -> object:
        asked.append(list(numbers))
        return read(table, numbers, *how, **more)

    monkeypatch.setattr(Table, "read_pieces", noted)
    selection = Selection(label="species")
    about, _ = shard_rows.look_at(Shard.of(tmp_path / "a.parquet"), selection)
    assert about.width == piles.H
    assert any(asked) == (column == "numbers")


def test_vectors_of_several_lengths_are_refused(tmp_path: Path) -> None:
    """Whatever their number lets a footer say."""
    vectors = pl.Series("z", [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0]], pl.List(pl.Float32))
    pl.DataFrame({"z": vectors, "y": ["a", "b"]}).write_parquet(tmp_path / "a.parquet")
    shard, selection = Shard.of(tmp_path / "a.parquet"), Selection()
    about, _ = shard_rows.look_at(shard, selection)
    with pytest.raises(ShapeError, match=r"must be of one length.* row 0 .* row 1"):
        list(shard_rows.read_shard(shard, selection, about))


@pytest.mark.parametrize("labels", [[2, 10, 100], ["owl", "emu", "10"]])
def test_a_features_file_knows_whether_its_classes_are_numbers(
    tmp_path: Path, labels: list[object]
) -> None:
    ll.Features.from_arrays(Z[:6], labels * 2, test=(Z[:3], labels)).save(
        tmp_path / "a.safetensors"
    )
    about, counts = shard_rows.look_at(Shard.of(tmp_path / "a.safetensors"), Selection())
    assert about.numbers == isinstance(labels[1], int)
    assert counts == dict.fromkeys(map(str, labels), 2)


def test_only_the_rows_that_are_meant_decide_what_classes_there_are(tmp_path: Path) -> None:
    """A column of splits is read first; rows of other splits are not asked for their labels."""
    frame = pl.DataFrame({"z": Z[:4], "y": [1.0, 2.0, 0.5, 1.0]})
    frame = frame.with_columns(split=pl.Series(["train", "train", "test", "test"]))
    frame.write_parquet(tmp_path / "a.parquet")
    shard = Shard.of(tmp_path / "a.parquet")
    assert shard_rows.look_at(shard, Selection())[1] == {"1": 1, "2": 1}
    assert shard_rows.look_at(shard, Selection("test"))[1] == {"0.5": 1, "1.0": 1}
    with pytest.raises(OptionError, match="no rows of 'validation'"):
        ll.fit(shard.path, "mean", rows="validation")


SIZES = [(100, 10), (1000, 10), (3, 5000), (20_000, 64), (1, 1 << 20)]


@pytest.mark.parametrize(("shards", "megabytes"), SIZES)
def test_groups(shards: int, megabytes: int) -> None:
    """Each shard is in one group, in its order; groups are neither tiny nor many."""
    listed = [Shard(f"/{k}", megabytes << 20, 0) for k in range(shards)]
    head = ll.make_head("slda", in_features=768, n_classes=1000)
    size = learned._group_bytes(listed, head)
    groups = learned._groups(listed, size)
    assert [k for start, stop in groups for k in range(start, stop)] == list(range(shards))
    assert len(groups) <= 2 * learned.MOST
    assert size >= learned.LEAST
    assert len(groups) >= min(shards, learned.FEW) // 2


@pytest.mark.parametrize("name", ["mean", "slda", "random_ridge"])
def test_two_shards_that_take_a_while_are_two_groups(name: str) -> None:
    """20,000 rows each, in float16: there is work for two cores."""
    listed = [Shard(f"/{k}", 2 * 768 * 20_000, 0) for k in range(2)]
    head = ll.make_head(name, in_features=768, n_classes=1000)
    assert len(learned._groups(listed, learned._group_bytes(listed, head))) == 2


def test_labels_beside_features_may_come_in_other_pieces(tmp_path: Path) -> None:
    folder = piles.clip_retrieval(tmp_path, pieces=1)
    shard = Shard.of(
        folder / "img_emb" / "img_emb_0.npy", folder / "metadata" / "metadata_0.parquet"
    )
    selection = Selection(label="species")
    about, counts = shard_rows.look_at(shard, selection)
    assert sum(counts.values()) == piles.N
    pieces = list(shard_rows.read_shard(shard, selection, about))
    names = [called[code] for _, (codes, called) in pieces for code in codes]
    assert names == list(Y)
    short = pl.read_parquet(folder / "metadata" / "metadata_0.parquet")[:-1]
    short.write_parquet(folder / "metadata" / "metadata_0.parquet")
    shard = Shard.of(Path(shard.path), Path(shard.labels))
    about, _ = shard_rows.look_at(shard, selection)
    with pytest.raises(ShapeError, match="must have as many rows as"):
        list(shard_rows.read_shard(shard, selection, about))
