"""The door for files: what a reader raises is said of the file; what is no file is not opened."""

import errno
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lastlayer.core.atomic_write import in_place_of
from lastlayer.core.files import FLOOR, check_archive, check_growth, reading
from lastlayer.errors import (
    FileFormatError,
    MissingFileError,
    OptionError,
    ReadError,
    WriteError,
)


class PanicException(BaseException):
    pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"1234")
    return tmp_path / "a"


@pytest.mark.parametrize(
    "error", [ValueError("odd"), EOFError(), RecursionError("deep"), KeyError(3), MemoryError(),
              PanicException("out of range"), OSError("cannot identify")]
)  # fmt: skip
def test_whatever_a_reader_raises_names_the_file(file: Path, error: BaseException) -> None:
    with pytest.raises(FileFormatError, match=str(file)), reading(file, "a table"):
        raise error


def test_what_the_system_refuses_is_no_damage(file: Path) -> None:
    with pytest.raises(ReadError, match=r"cannot read .*: Permission denied; ask"):  # noqa: SIM117
        with reading(file, "a table", "ask for it"):
            raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), OptionError("ours")])
def test_what_is_not_about_the_file_passes(file: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), reading(file, "a table"):
        raise error


def test_a_message_is_one_line(file: Path) -> None:
    with pytest.raises(FileFormatError) as caught, reading(file, "a table"):
        raise ValueError("first\nsecond" + "x" * 10_000)
    assert str(caught.value).endswith("damaged: first")


@pytest.mark.parametrize("name", ["nothing", "a/below a file", ".", "x" * 5000])
def test_what_is_not_there(file: Path, name: str) -> None:
    with (
        pytest.raises((MissingFileError, ReadError, OptionError)),
        reading(file.parent / name, "a table"),
    ):
        pass


@pytest.mark.parametrize("name", ["a\0b", ""])
def test_what_can_be_no_path(name: str) -> None:
    with pytest.raises(OptionError, match="must name a file"), reading(name, "a table"):
        pass


def test_pipes_and_devices_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(FileFormatError, match="is a pipe or a device"):  # noqa: SIM117
            with reading(path, "a table"):
                pytest.fail("it was opened")


def test_growth_is_bounded_by_the_size_of_the_file(file: Path) -> None:
    check_growth(file, FLOOR, "z")
    with pytest.raises(FileFormatError, match=r"z of .* would take 256 MiB in memory"):
        check_growth(file, FLOOR + 1, "z")
    os.truncate(file, FLOOR)
    check_growth(file, 64 * FLOOR, "z")
    with pytest.raises(FileFormatError, match="may take 16,384 MiB"):
        check_growth(file, 64 * FLOOR + 1, "z")


def test_an_archive_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(str(number), bytes(1 << 25))
    with pytest.raises(FileFormatError, match="would take 288 MiB"):
        check_archive(path, "it")


def test_a_misspelt_path_gets_the_nearest_name_beside_it(tmp_path: Path) -> None:
    (tmp_path / "birds.npz").write_bytes(b"")
    for name, ending in [
        ("brids.npz", rf"; did you mean '{tmp_path}/birds\.npz'\?$"),
        ("mammals.npz", "$"),
        ("away/birds.npz", "$"),
    ]:
        message = rf"no such file: {tmp_path}/{name}; it must be a file{ending}"
        with pytest.raises(MissingFileError, match=message), reading(tmp_path / name, "a file"):
            pass


def test_a_file_is_on_disk_before_its_name_and_its_name_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    paths: dict[int, str] = {}
    opened, synced, replaced = os.open, os.fsync, os.replace

    def note_open(path: Any, *args: Any, **how: Any) -> int:
        place = opened(path, *args, **how)
        paths[place] = "folder" if Path(path).is_dir() else "file"
        return place

    def note_sync(place: int) -> None:
        done.append(f"sync {paths[place]}")
        synced(place)

    def note_replace(*args: Any) -> None:
        done.append("replace")
        replaced(*args)

    monkeypatch.setattr("lastlayer.core.files.os.open", note_open)
    monkeypatch.setattr("lastlayer.core.files.os.fsync", note_sync)
    monkeypatch.setattr("lastlayer.core.files.os.replace", note_replace)
    with in_place_of(tmp_path / "a") as unfinished:
        unfinished.write_text("new")
        done.append("write")
    assert done == ["write", "sync file", "replace", "sync folder"]
    assert (tmp_path / "a").read_text() == "new"
    done.clear()
    with in_place_of(tmp_path / "new" / "newer" / "a") as unfinished:
        unfinished.write_text("new")
    # The names of both new folders too: a file in a folder that is lost is lost.
    assert done == ["sync folder"] * 2 + ["sync file", "replace", "sync folder"]


def test_a_file_that_cannot_be_synced_leaves_what_was_there(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(place: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("lastlayer.core.files.os.fsync", fail)
    with pytest.raises(WriteError, match="Input/output error"), in_place_of(file) as unfinished:
        unfinished.write_text("new")
    assert file.read_bytes() == b"1234"
    assert os.listdir(file.parent) == ["a"]


@pytest.mark.parametrize("error", [MemoryError(), ValueError("Cannot allocate memory (os)")])
def test_a_file_that_does_not_fit_memory_is_not_called_damaged(
    file: Path, error: Exception
) -> None:
    said = "asks for more memory than there is"
    with pytest.raises(FileFormatError, match=said), reading(file, "a table of text"):
        raise error
