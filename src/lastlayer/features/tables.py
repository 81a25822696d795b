"""Named columns out of .npz and .parquet files, as arrays."""

import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lastlayer.errors import DataError, FileFormatError, MissingFileError, ShapeError
from lastlayer.names import look_up

Array = np.ndarray[Any, Any]


def read_table(path: str | os.PathLike[str], columns: Sequence[str]) -> dict[str, Array]:
    """Read some columns of a file, and nothing else of it; each has one value per sample."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"expected a .npz or .parquet file at {path}, but there is none")
    table = look_up(path.suffix.lower(), READERS, "type of table")(path, columns)
    n = len(next(iter(table.values())))
    if n == 0:
        raise DataError(f"expected at least one sample, but {path} has no rows")
    for name, values in table.items():
        if len(values) != n:
            raise ShapeError(f"expected {n} values in column '{name}', got {len(values)}")
    return table


def _read_npz(path: Path, columns: Sequence[str]) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):
        raise FileFormatError(f"expected a .npz file, but {path} is none, or a truncated one")
    with np.load(path, allow_pickle=False) as file:
        known = dict.fromkeys(file.files)
        for name in columns:
            look_up(name, known, "column")
        try:
            return {name: np.atleast_1d(file[name]) for name in columns}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise FileFormatError(
                f"expected arrays of numbers or text in {path}, which is damaged or holds "
                f"objects: {error}"
            ) from error


def _read_parquet(path: Path, columns: Sequence[str]) -> dict[str, Array]:
    try:
        known = dict.fromkeys(pl.read_parquet_schema(path))
        for name in columns:
            look_up(name, known, "column")
        table = pl.read_parquet(path, columns=list(dict.fromkeys(columns)))
    except pl.exceptions.PolarsError as error:
        raise FileFormatError(f"expected a parquet file, but {path} is none: {error}") from error
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
    if isinstance(series.dtype, pl.Array) or series.dtype.is_numeric():
        return series.to_numpy()
    try:
        return series.cast(pl.String).to_numpy().astype(np.str_)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"expected numbers or text in '{series.name}', got {series.dtype}, which cannot be "
            "written as text"
        ) from error


READERS: dict[str, Callable[[Path, Sequence[str]], dict[str, Array]]] = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
