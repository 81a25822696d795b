"""Named columns out of .npz and .parquet files, as arrays."""

import math
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.lib import format as npy

from lastlayer.arguments import a_path
from lastlayer.errors import DataError, FileFormatError, ShapeError
from lastlayer.features.parquet_footer import unpacked_size
from lastlayer.names import look_up
from lastlayer.reading import check_growth, reading

Array = np.ndarray[Any, Any]


def read_table(path: str | os.PathLike[str], columns: Sequence[str]) -> dict[str, Array]:
    """Read some columns of a file, and nothing else of it; each has one value per sample."""
    path = a_path(path)
    read = look_up(path.suffix.lower(), READERS, "type of table")
    with reading(path, f"a {path.suffix.lower()} file"):
        table = read(path, columns)
    n = len(next(iter(table.values())))
    if n == 0:
        raise DataError(f"expected at least one sample, but {path} has no rows")
    for name, values in table.items():
        if len(values) != n:
            raise ShapeError(f"expected {n} values in column '{name}', got {len(values)}")
    return table


def _read_npz(path: Path, columns: Sequence[str]) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        known = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        entries = {name: look_up(name, known, "column") for name in columns}
        size = sum(entry.file_size for entry in entries.values())
        check_growth(path, size, ", ".join(entries))
        return {name: _read_npy(archive, entry, path) for name, entry in entries.items()}


_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def _read_npy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> Array:
    """Read one array; its header is believed only as far as there are bytes for it."""
    with archive.open(entry) as file:
        shape, _, dtype = _HEADERS[npy.read_magic(file)](file)
        if dtype.hasobject or dtype.kind == "V":
            raise FileFormatError(
                f"expected arrays of numbers or text in {path}, but {entry.filename} holds "
                f"objects ({dtype})"
            )
        if math.prod(shape) * max(dtype.itemsize, 1) > entry.file_size:
            raise FileFormatError(
                f"{path} is damaged: {entry.filename} says that it holds an array of shape {shape} "
                f"in {entry.file_size} bytes"
            )
    with archive.open(entry) as file:
        return np.atleast_1d(npy.read_array(file, allow_pickle=False))


def _read_parquet(path: Path, columns: Sequence[str]) -> dict[str, Array]:
    # A path names one file: no glob, no folders that mean columns, no home of another user.
    lazy = pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)
    known = dict.fromkeys(lazy.collect_schema())
    for name in columns:
        look_up(name, known, "column")
    wanted = list(dict.fromkeys(columns))
    check_growth(path, unpacked_size(path, wanted), ", ".join(wanted))
    table = lazy.select(wanted).collect()
    # Equal texts lie in memory once until they are handed over one by one.
    check_growth(path, int(table.estimated_size()), ", ".join(wanted))
    return {series.name: _as_array(series) for series in table}


def _as_array(series: pl.Series) -> Array:
    """Give a column of lists as (n, h), of numbers as they are, of anything else as text."""
    if series.null_count():
        raise DataError(f"expected a value in every row of '{series.name}', but some are missing")
    if isinstance(series.dtype, pl.List):
        widths = series.list.len().unique().sort().to_list()
        if len(widths) > 1:
            raise ShapeError(f"expected lists of one length in '{series.name}', got {widths[:5]}")
        series = series.list.to_array(widths[0] if widths else 0)
    try:
        if isinstance(series.dtype, pl.Array) or _has_numbers(series.dtype):
            return series.to_numpy()
        return series.cast(pl.String).to_numpy()  # as objects: a label may be of any length
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"expected numbers or text in '{series.name}', got {series.dtype}, which cannot be "
            "read as either"
        ) from error


def _has_numbers(dtype: pl.DataType) -> bool:
    """Tell whether numpy has such numbers: not those of 128 bits, nor decimals."""
    return dtype.is_float() or (dtype.is_integer() and str(dtype) not in ("Int128", "UInt128"))


READERS: dict[str, Callable[[Path, Sequence[str]], dict[str, Array]]] = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
