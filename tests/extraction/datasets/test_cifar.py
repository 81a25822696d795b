"""The readers of CIFAR: both versions, only the official files, and nothing is run."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from tests import fake_cifar

from lastlayer.errors import FileFormatError, MissingFileError, UnknownNameError
from lastlayer.extraction.datasets.cifar import (
    CIFAR,
    load_arrays,
    parse_pickle,
    parse_records,
    read_cifar,
)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("kind", ["python", "binary"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, inside: bool
) -> None:
    folder = fake_cifar.write(tmp_path, monkeypatch, name, kind)
    found = read_cifar(name, folder if inside else tmp_path)
    train, test, names = found.train, found.test, found.names
    n_files = 5 if name == "cifar10" else 1
    classes = {"class": 3} if name == "cifar10" else {"fine": 5, "coarse": 2}
    written = [fake_cifar.make_images(6, classes, seed) for seed in range(n_files + 1)]
    for images, parts in ((train, written[:-1]), (test, written[-1:])):
        x = np.concatenate([part["x"] for part in parts])
        assert isinstance(images.x, torch.Tensor)
        assert images.x.dtype == torch.uint8
        assert np.array_equal(images.x.numpy(), x.reshape(-1, 3, 32, 32))
        for column in classes:
            expected = np.concatenate([part[column] for part in parts])
            assert images.labels[column].tolist() == expected.tolist()
    assert list(names) == list(classes)
    assert names == {c: tuple(f"{c}_{i}" for i in range(k)) for c, k in classes.items()}


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_every_file_has_a_checksum_of_its_own(name: str) -> None:
    for version in CIFAR[name]:
        sums = [*version.train.values(), *version.test.values()]
        assert all(len(md5) == 32 for md5 in sums)
        assert len(set(sums)) == len(sums) == (6 if name == "cifar10" else 2)


@pytest.mark.parametrize("kind", ["python", "binary"])
def test_a_changed_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = fake_cifar.write(tmp_path, monkeypatch, "cifar100", kind)
    file = folder / next(iter(CIFAR["cifar100"][kind == "binary"].test))
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        FileFormatError, match=r"test.* must be the official file with MD5 \w{32}, got"
    ):
        read_cifar("cifar100", tmp_path)


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingFileError, match="cifar-10-batches-py or cifar-10-batches-bin in"):
        read_cifar("cifar10", tmp_path)
    folder = fake_cifar.write(tmp_path, monkeypatch, "cifar10", "binary")
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(MissingFileError, match=r"there is no .*data_batch_4\.bin: download"):
        read_cifar("cifar10", tmp_path)


def test_an_unknown_data_set(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cifar10'"):
        read_cifar("cifar1", tmp_path)


def test_names_that_do_not_fit_the_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_cifar.write(tmp_path, monkeypatch, "cifar10", "binary")
    (folder / "batches.meta.txt").write_text("airplane\nship\n")
    with pytest.raises(FileFormatError, match="must hold 3 names of 'class'"):
        read_cifar("cifar10", tmp_path)
    (folder / "batches.meta.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FileFormatError, match="must hold the names of 'class'"):
        read_cifar("cifar10", tmp_path)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil",)


def test_a_pickle_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        content = pickle.dumps({"data": Evil()}, protocol)
        with pytest.raises(FileFormatError, match="there may be only arrays, got"):
            load_arrays(content, "batch")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("content", [b"", b"hello", pickle.dumps({"a": 1})[:-3], b"\x80\x02]."])
def test_pickles_that_are_none(content: bytes) -> None:
    with pytest.raises(FileFormatError, match="batch"):
        load_arrays(content, "batch")


def test_batches_of_another_layout() -> None:
    with pytest.raises(FileFormatError, match="must hold images and"):
        parse_pickle(pickle.dumps({"data": [1, 2]}), "batch", {"class": "labels"})
    with pytest.raises(FileFormatError, match="must hold images and"):
        parse_pickle(pickle.dumps({"data": [1, 2], "labels": [1]}), "batch", {"class": "labels"})
    with pytest.raises(
        FileFormatError, match="batch must hold records of 3073 bytes, got 3074 bytes"
    ):
        parse_records(bytes(3074), "batch", ("class",))
