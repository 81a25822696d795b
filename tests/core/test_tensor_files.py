"""Our files: whole or not at all, and never believed when they are not ours."""

import json
import os
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from lastlayer.core.tensor_files import FORMAT, fingerprint, read_tensors, write_tensors
from lastlayer.errors import ArgumentError, FileFormatError, MissingFileError, WriteError

Z = torch.arange(12.0).reshape(4, 3)
TENSORS = {"z": Z, "y": torch.tensor([1, 0, 2, 1])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.safetensors"
    write_tensors(path, "features", TENSORS, {"names": ["é", "b"]})
    return path


def rewrite_document(path: Path, **changes: object) -> None:
    """Change what a file says about itself, as another version would."""
    document = {"kind": "features", "format": FORMAT, "metadata": {}, "checksum": ""} | changes
    save_file(TENSORS, path, metadata={"lastlayer": json.dumps(document)})


def test_what_is_written_is_read(path: Path) -> None:
    tensors, metadata = read_tensors(path, "features")
    assert metadata == {"names": ["é", "b"]}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.bool]
)
def test_every_type_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    write_tensors(tmp_path / "a", "head", {"a": Z.to(dtype)}, {})
    assert torch.equal(read_tensors(tmp_path / "a", "head")[0]["a"], Z.to(dtype))


def test_tensors_that_share_memory_can_be_written(tmp_path: Path) -> None:
    shared = {"a": Z, "b": Z, "c": Z[1:3], "d": Z.T, "e": Z[:0]}
    write_tensors(tmp_path / "a", "head", shared, {})
    read, _ = read_tensors(tmp_path / "a", "head")
    assert all(torch.equal(read[name], tensor) for name, tensor in shared.items())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="tells mapped memory on Linux")
def test_tensors_are_mapped_not_copied(path: Path) -> None:
    z = read_tensors(path, "features")[0]["z"]
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [line[0].split("-") for line in lines if line[-1] == str(path)]
    assert any(int(low, 16) <= z.data_ptr() < int(high, 16) for low, high in ranges)


def test_writing_to_a_mapped_tensor_leaves_the_file_alone(path: Path) -> None:
    read_tensors(path, "features")[0]["z"].zero_()
    assert torch.equal(read_tensors(path, "features")[0]["z"], Z)


def test_a_file_can_be_written_over_while_it_is_in_use(path: Path) -> None:
    before, _ = read_tensors(path, "features")
    write_tensors(path, "features", {"z": Z + 1}, {})
    assert torch.equal(before["z"], Z)
    assert torch.equal(read_tensors(path, "features")[0]["z"], Z + 1)


def test_the_file_has_the_usual_permissions(path: Path) -> None:
    plain = path.parent / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


@given(st.data())
def test_no_cut_or_changed_byte_goes_unnoticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a"
    write_tensors(path, "features", TENSORS, {"names": ["a", "b"]})
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    damaged = content[:place]
    if data.draw(st.booleans()):
        damaged += bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
    path.write_bytes(damaged)
    try:
        tensors, metadata = read_tensors(path, "features")
    except FileFormatError:
        return
    # Blanks that pad the header, and the spelling of its JSON, carry no meaning.
    assert metadata == {"names": ["a", "b"]}
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())


def test_a_truncated_file_says_so(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)
    with pytest.raises(FileFormatError, match="truncated or damaged"):
        read_tensors(path, "features")


def test_an_altered_file_says_so(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="altered"):
        read_tensors(path, "features")


def test_altered_metadata_is_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'\\"b\\"', b'\\"c\\"'))
    with pytest.raises(FileFormatError, match="altered"):
        read_tensors(path, "features")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x02", b"hello, world", b"PK\x03\x04" + bytes(100), struct.pack("<Q", 2) + b"[]",
     struct.pack("<Q", 4) + b"\xff\xfe{}", struct.pack("<Q", 1 << 60) + b"{}"],
)  # fmt: skip
def test_a_file_that_is_no_safetensors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(FileFormatError, match="expected a safetensors file"):
        read_tensors(tmp_path / "a", "features")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"lastlayer": "no JSON"}])
def test_a_file_of_another_program(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file(TENSORS, tmp_path / "a", metadata=metadata)
    with pytest.raises(FileFormatError, match="of another program"):
        read_tensors(tmp_path / "a", "features")


def test_a_file_of_another_kind(path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"expected a lastlayer head file.*holds features"):
        read_tensors(path, "head")


@pytest.mark.parametrize("version", [FORMAT + 1, "two"])
def test_a_file_from_the_future(tmp_path: Path, version: object) -> None:
    rewrite_document(tmp_path / "a", format=version)
    with pytest.raises(FileFormatError, match="upgrade lastlayer"):
        read_tensors(tmp_path / "a", "features")


@pytest.mark.parametrize(
    "entry",
    [{}, {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}, [1],
     {"dtype": "F32", "shape": [1], "data_offsets": [-90, 4]},
     {"dtype": "F32", "shape": [4, 3], "data_offsets": [0.0, 48.0]},
     {"dtype": "F32", "shape": [1e400], "data_offsets": [0, 48]}],
)  # fmt: skip
def test_a_damaged_header(path: Path, entry: object) -> None:
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    raw = json.dumps(header | {"z": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + path.read_bytes()[8 + size :])
    with pytest.raises(FileFormatError, match=r"truncated or damaged.*header"):
        read_tensors(path, "features")


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"z":' * 100_000])
def test_headers_as_deep_as_a_well(tmp_path: Path, deep: str) -> None:
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(deep)) + deep.encode())
    with pytest.raises(FileFormatError, match="expected a safetensors file"):
        read_tensors(tmp_path / "a", "features")
    save_file(TENSORS, tmp_path / "b", metadata={"lastlayer": deep})
    with pytest.raises(FileFormatError, match="of another program"):
        read_tensors(tmp_path / "b", "features")


@pytest.mark.parametrize("metadata", [[], "names", None, 7])
def test_metadata_that_are_no_table(tmp_path: Path, metadata: object) -> None:
    rewrite_document(tmp_path / "a", metadata=metadata)
    with pytest.raises(FileFormatError, match="of another program"):
        read_tensors(tmp_path / "a", "features")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="is a pipe or a device"):
        read_tensors(tmp_path / "pipe", "features")


@pytest.mark.parametrize("path", [None, 7, b"a", ["a"], Path])
def test_what_is_no_path(path: object) -> None:
    with pytest.raises(ArgumentError, match="path must be a str or a path object"):
        read_tensors(path, "features")  # type: ignore[arg-type]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no such file"):
        read_tensors(tmp_path / "a", "features")
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path, "features")


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    with small_disk(1000), pytest.raises(WriteError, match="cannot write"):
        write_tensors(path, "features", {"z": torch.zeros(10_000)}, {})
    assert os.listdir(path.parent) == [path.name]
    assert torch.equal(read_tensors(path, "features")[0]["z"], Z)


def test_an_interrupted_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lastlayer.core.tensor_files.os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_tensors(tmp_path / "a", "features", TENSORS, {})
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written(path: Path) -> None:
    with pytest.raises(WriteError, match="cannot write"):
        write_tensors(path / "under a file", "features", TENSORS, {})
    with pytest.raises(OSError, match="is a folder or a device"):
        write_tensors(path.parent, "features", TENSORS, {})


def test_a_device_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WriteError, match="is a folder or a device"):
        write_tensors(tmp_path / "pipe", "features", TENSORS, {})
    assert (tmp_path / "pipe").is_fifo()


def test_the_fingerprint_tells_content_apart() -> None:
    assert fingerprint(TENSORS) == fingerprint(dict(reversed(TENSORS.items())))
    others = [{"z": Z}, {"a": Z}, {"z": Z.T}, {"z": Z.double()}, {"z": Z.reshape(3, 4)}, {"z": -Z}]
    assert len({fingerprint(other) for other in [*others, TENSORS]}) == 7
