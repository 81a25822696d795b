"""The official files of CIFAR10 and CIFAR100, python and binary version, checksums verified."""

import hashlib
import io
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lastlayer.core.names import look_up
from lastlayer.errors import FileFormatError, MissingFileError
from lastlayer.extraction.datasets.images import Images, ImageSet

HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
Array = np.ndarray[Any, Any]
_PIXELS = 3 * 32 * 32  # all red values of an image row by row, then all green, then all blue


def parse_pickle(content: bytes, source: str, keys: Mapping[str, str]) -> dict[str, Array]:
    """Return the images, as "x" (n, 3072), and the label columns of a pickled batch."""
    batch = load_arrays(content, source)
    try:
        arrays = {column: np.asarray(batch[key]) for column, key in keys.items()}
        return {"x": np.asarray(batch["data"]).reshape(-1, _PIXELS), **arrays}
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"{source} must hold images and {list(keys)}: {error}") from error


def parse_records(content: bytes, source: str, columns: tuple[str, ...]) -> dict[str, Array]:
    """Return the same of a file of records: one byte per label column, then the image."""
    width = len(columns) + _PIXELS
    if not content or len(content) % width:
        raise FileFormatError(
            f"{source} must hold records of {width} bytes, got {len(content)} bytes"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, width)
    labels = {column: records[:, i] for i, column in enumerate(columns)}
    return {"x": records[:, len(columns) :], **labels}


def parse_pickled_names(content: bytes, source: str, key: str) -> tuple[str, ...]:
    """Return the class names that a pickled meta file holds under a key."""
    meta = load_arrays(content, source)
    if key not in meta:
        raise FileFormatError(f"{source} must hold '{key}', got {list(meta)}")
    return tuple(str(name) for name in meta[key])


def parse_listed_names(content: bytes, source: str, key: str) -> tuple[str, ...]:
    """Return the class names of a text file with one name per line."""
    try:
        return tuple(content.decode().split())
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{source} must hold the names of '{key}': {error}") from error


@dataclass(frozen=True)
class Version:
    """One form in which a data set is published: its files, and how to read one."""

    folder: str
    train: Mapping[str, str]  # file → MD5
    test: Mapping[str, str]
    names: Mapping[str, tuple[str, str, str]]  # label column → file, MD5 or "", key in the file
    parse: Callable[[bytes, str], dict[str, Array]]
    parse_names: Callable[[bytes, str, str], tuple[str, ...]]


CIFAR = {
    "cifar10": (
        Version(
            folder="cifar-10-batches-py",
            train={
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            },
            test={"test_batch": "40351d587109b95175f43aff81a1287e"},
            names={"class": ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888", "label_names")},
            parse=partial(parse_pickle, keys={"class": "labels"}),
            parse_names=parse_pickled_names,
        ),
        Version(
            folder="cifar-10-batches-bin",
            train={
                "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
                "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
                "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
                "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
                "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            },
            test={"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"},
            names={"class": ("batches.meta.txt", "", "class")},
            parse=partial(parse_records, columns=("class",)),
            parse_names=parse_listed_names,
        ),
    ),
    "cifar100": (
        Version(
            folder="cifar-100-python",
            train={"train": "16019d7e3df5f24257cddd939b257f8d"},
            test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
            names={
                "fine": ("meta", "7973b15100ade9c7d40fb424638fde48", "fine_label_names"),
                "coarse": ("meta", "7973b15100ade9c7d40fb424638fde48", "coarse_label_names"),
            },
            parse=partial(parse_pickle, keys={"fine": "fine_labels", "coarse": "coarse_labels"}),
            parse_names=parse_pickled_names,
        ),
        Version(
            folder="cifar-100-binary",
            train={"train.bin": "6172c7755cfe09b2fe270c85cebc1b15"},
            test={"test.bin": "4499cfba6c016c1be1438163640a0898"},
            names={
                "fine": ("fine_label_names.txt", "", "fine"),
                "coarse": ("coarse_label_names.txt", "", "coarse"),
            },
            parse=partial(parse_records, columns=("coarse", "fine")),
            parse_names=parse_listed_names,
        ),
    ),
}


def read_cifar(name: str, root: str | os.PathLike[str]) -> ImageSet:
    """Read ``cifar10`` or ``cifar100`` whole: it is small.

    The official archive was unpacked in ``root``, or as ``root``.
    """
    folder, version = _find(look_up(name, CIFAR, "data set"), Path(root))
    names = {
        column: version.parse_names(_official(folder / file, md5), str(folder / file), key)
        for column, (file, md5, key) in version.names.items()
    }
    train, test = (_read(folder, files, version) for files in (version.train, version.test))
    for column, known in names.items():
        top = int(max(train.labels[column].max(), test.labels[column].max()))
        if top != len(known) - 1:
            raise FileFormatError(f"{folder} must hold {top + 1} names of '{column}', got {known}")
    return ImageSet(name, train, test, names)


def _find(versions: tuple[Version, ...], root: Path) -> tuple[Path, Version]:
    for version in versions:
        for folder in (root / version.folder, root):
            if (folder / next(iter(version.train))).is_file():
                return folder, version
    folders = " or ".join(version.folder for version in versions)
    raise MissingFileError(
        f"there is no {folders} in {root}: unpack the python or the binary version from {HOME} "
        "there"
    )


def _read(folder: Path, files: Mapping[str, str], version: Version) -> Images:
    parts = [version.parse(_official(folder / f, md5), str(folder / f)) for f, md5 in files.items()]
    joined = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    labels = {c: torch.from_numpy(joined[c].astype(np.int64)) for c in version.names}
    return Images(torch.from_numpy(joined["x"]).reshape(-1, 3, 32, 32), labels)


def _official(path: Path, md5: str) -> bytes:
    """Read a file, and make sure that it is the published one where its MD5 is known."""
    if not path.is_file():
        raise MissingFileError(f"there is no {path}: download it from {HOME}")
    content = path.read_bytes()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 and found != md5:
        raise FileFormatError(
            f"{path} must be the official file with MD5 {md5}, got {found}: "
            f"download it again from {HOME}"
        )
    return content


def _empty_array(kind: type, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Stand in for numpy's own function, whose home differs between its versions."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError(f"there may be only plain arrays, got {kind}")
    return np.ndarray(shape, dtype)


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"there may be only arrays, got {module}.{name}")
        return _ALLOWED[module, name]


def load_arrays(content: bytes, source: str) -> dict[str, Any]:
    """Unpickle a dictionary of arrays, numbers and text; anything else is refused.

    >>> load_arrays(pickle.dumps({"labels": [6, 9]}), "batch")
    {'labels': [6, 9]}
    """
    try:
        # Python 2 wrote these files: latin1 turns its strings into text, byte for byte.
        loaded = _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise FileFormatError(f"{source} cannot be read as a pickle of arrays: {error}") from error
    if not isinstance(loaded, dict):
        raise FileFormatError(f"{source} must hold a dictionary, got {type(loaded).__name__}")
    return loaded
