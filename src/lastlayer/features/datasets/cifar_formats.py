"""What is inside the files of CIFAR: pickles in the python version, records in the binary one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lastlayer.errors import FileFormatError
from lastlayer.features.datasets.safe_pickle import load_arrays

Array = np.ndarray[Any, Any]
_PIXELS = 3 * 32 * 32  # all red values of an image row by row, then all green, then all blue


def parse_pickle(content: bytes, source: str, keys: Mapping[str, str]) -> dict[str, Array]:
    """Give the images, as "x" (n, 3072), and the label columns of a pickled batch."""
    batch = load_arrays(content, source)
    try:
        arrays = {column: np.asarray(batch[key]) for column, key in keys.items()}
        return {"x": np.asarray(batch["data"]).reshape(-1, _PIXELS), **arrays}
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"expected images and {list(keys)} in {source}: {error}") from error


def parse_records(content: bytes, source: str, columns: tuple[str, ...]) -> dict[str, Array]:
    """Give the same of a file of records: one byte per label column, then the image."""
    width = len(columns) + _PIXELS
    if not content or len(content) % width:
        raise FileFormatError(
            f"expected records of {width} bytes in {source}, got {len(content)} bytes"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, width)
    labels = {column: records[:, i] for i, column in enumerate(columns)}
    return {"x": records[:, len(columns) :], **labels}


def parse_pickled_names(content: bytes, source: str, key: str) -> tuple[str, ...]:
    """Give the class names that a pickled meta file holds under a key."""
    meta = load_arrays(content, source)
    if key not in meta:
        raise FileFormatError(f"expected '{key}' in {source}, got {list(meta)}")
    return tuple(str(name) for name in meta[key])


def parse_listed_names(content: bytes, source: str, key: str) -> tuple[str, ...]:
    """Give the class names of a text file with one name per line."""
    try:
        return tuple(content.decode().split())
    except UnicodeDecodeError as error:
        raise FileFormatError(f"expected the names of '{key}' in {source}: {error}") from error
