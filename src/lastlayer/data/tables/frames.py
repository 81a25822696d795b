"""Tables that polars reads: CSV, TSV, Parquet, Arrow, Feather, JSON lines, and frames in memory."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lastlayer.core.checks import kind_of, short
from lastlayer.core.files import check_growth, reading
from lastlayer.core.panics import without_panics
from lastlayer.data.label_values import refuse_mixed
from lastlayer.data.tables import arrow_stream
from lastlayer.data.tables.parquet_footer import Footer, read_footer
from lastlayer.data.tables.table import Array, Columns, Table, at_once
from lastlayer.errors import ArgumentError, DataError, FileFormatError, LabelError, ShapeError

# How many rows tell how large the others are.
_SAMPLE = 1000
# Text that is a number and nothing else: not 007.
_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
# How polars renames a second column of the same name.
_REPEATED = re.compile(r"(.+)_duplicated_\d+$", re.DOTALL)


def open_text(path: Path, separator: str) -> Table:
    """Open a CSV or TSV file: numbers where numbers are asked for, everything else as it stands."""

    def scan(numbers: Sequence[str] = ()) -> pl.LazyFrame:
        # A path names one file: no glob, no home of another user.
        return pl.scan_csv(
            path.absolute(),
            separator=separator,
            glob=False,
            infer_schema=False,
            schema_overrides=dict.fromkeys(numbers, pl.Float64),
        )

    known = scan().collect_schema()
    _refuse_repeated(path, list(known))

    def get(numbers: Sequence[str], labels: Sequence[str]) -> Columns:
        with reading(path, "a table of text"), without_panics():
            first = scan().select(numbers).head(1).collect()
            lists = [n for n in numbers if str(first[n][0] if first.height else "").startswith("[")]
            plain = [name for name in numbers if name not in lists]
            try:
                frame = scan(plain).select([*numbers, *labels]).collect()
            except pl.exceptions.ComputeError:
                _refuse_text(scan().select(plain).collect())
                raise
            decoded = [_decoded(frame[name]) for name in lists]
            return _arrays(frame.with_columns(decoded), numbers, labels, text=True)

    return Table(str(path), dict.fromkeys(known, 1), at_once(get))


def open_parquet(path: Path) -> Table:
    """Open a Parquet file."""
    # A path names one file: no glob, no folders that mean columns, no home of another user.
    lazy = pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)
    return _lazy(path, lazy, partial(read_footer, path))


def open_arrow(path: Path) -> Table:
    """Open an Arrow file: of random access, which is also Feather's format, or a stream."""
    with path.open("rb") as file:
        begin = file.read(6)
    if begin.startswith(b"FEA1"):
        raise FileFormatError(
            f"{path} is a Feather file of version 1, which is obsolete: write it again as version 2"
        )
    if begin == b"ARROW1":
        return _lazy(path, pl.scan_ipc(path.absolute(), glob=False))
    return open_shards(path, [path], {})


def open_json_lines(path: Path) -> Table:
    """Open a file with a JSON object in each line."""
    with path.open("rb") as file:  # by itself it would take the path for a pattern
        frame = pl.read_ndjson(file, infer_schema_length=None)

    def get(numbers: Sequence[str], labels: Sequence[str]) -> Columns:
        for name in labels:
            if frame[name].dtype == pl.String:
                _refuse_mixed(path, frame[name])
        return _arrays(frame, numbers, labels)

    return Table(str(path), _dimensions(frame.schema), at_once(get))


def open_shards(source: Path, files: Sequence[Path], names: dict[str, list[str]]) -> Table:
    """Open Arrow streams that make one table; ``names`` has those of classes, by column."""
    schema = arrow_stream.schema_of(files[0])

    def stream(
        numbers: Sequence[str], labels: Sequence[str], rows: int | None, most: int | None
    ) -> Iterator[Columns]:
        start = 0
        for file in files:
            for frame in arrow_stream.pieces(file):
                if frame.schema != schema:
                    raise FileFormatError(f"{file} must have the columns of {files[0]}")
                columns = _arrays(frame, numbers, labels, start=start)
                for name in names.keys() & set(labels):
                    columns[name] = _named(columns[name], name, names[name])
                yield columns
                start += frame.height

    return Table(str(source), _dimensions(schema), stream)


def open_frame(frame: Any) -> Table:
    """Take a frame of polars or pandas, or anything with the Arrow interface."""
    given = frame
    if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
        frame = _from_pandas(frame) if _is_pandas(frame) else _from_arrow(frame)
    lazy = frame.lazy()

    def get(numbers: Sequence[str], labels: Sequence[str]) -> Columns:
        if _is_pandas(given):  # of numbers among texts polars has made text
            places = {str(column): place for place, column in enumerate(given.columns)}
            for name in labels:
                refuse_mixed(name, [_plain(v) for v in given.iloc[:, places[name]].tolist()])
        return _arrays(lazy.select([*numbers, *labels]).collect(), numbers, labels)

    return Table("the frame", _dimensions(lazy.collect_schema()), at_once(get))


def _lazy(path: Path, lazy: pl.LazyFrame, footer: Callable[[], Footer] | None = None) -> Table:
    """Return the table of a file, which may not grow too much in memory.

    How large it is the footer says before it is read; without one, the first rows do.
    """

    def check(columns: Sequence[str]) -> Footer | None:
        """Refuse columns that would take too much memory, before they are unpacked."""
        about = None if footer is None else footer()
        size = _estimate(lazy.select(columns)) if about is None else about.unpacked_size(columns)
        check_growth(path, size, ", ".join(columns[:5]))
        return about

    def stream(
        numbers: Sequence[str], labels: Sequence[str], rows: int | None, most: int | None
    ) -> Iterator[Columns]:
        columns, start = [*numbers, *labels], 0
        with reading(path, f"a {path.suffix.lower()} file"), without_panics():
            about, some = check(columns), lazy.select(columns)
            groups = about.row_groups if about is not None and most is None else None
            for piece in _pieces(some if most is None else some.head(most), rows, groups):
                # Equal texts lie in memory once until they are handed over one by one.
                check_growth(path, int(piece.estimated_size()), ", ".join(columns[:5]))
                yield _arrays(piece, numbers, labels, start=start)
                start += piece.height
                # Let go of this piece before the next one is read.
                del piece

    def width(name: str) -> int | None:
        if footer is None:
            return None
        with reading(path, f"a {path.suffix.lower()} file"), without_panics():
            check([name])
            return footer().width(name)

    return Table(str(path), _dimensions(lazy.collect_schema()), stream, width)


def _pieces(
    lazy: pl.LazyFrame, rows: int | None, groups: list[int] | None
) -> Iterator[pl.DataFrame]:
    """Read a table about that many rows at a time, at least one row group where there are some.

    By itself polars would unpack row groups ahead, and hold several of them.
    """
    if rows is None:
        yield lazy.collect()
    elif groups is not None:
        for start, n in _together(groups, rows):
            yield lazy.slice(start, n).collect()
    elif hasattr(lazy, "collect_batches"):
        yield from lazy.collect_batches(chunk_size=rows, maintain_order=True)
    else:
        height = lazy.select(pl.len()).collect().item()
        for start in range(0, height, rows):
            yield lazy.slice(start, rows).collect()


def _together(groups: Sequence[int], rows: int) -> Iterator[tuple[int, int]]:
    """Take small row groups together; return the first row of each piece, and how many it has.

    >>> list(_together([4, 4, 9, 1], rows=8))
    [(0, 8), (8, 9), (17, 1)]
    """
    start = n = 0
    for group in groups:
        if n and n + group > rows:
            yield start, n
            start, n = start + n, 0
        n += group
    if n:
        yield start, n


def _estimate(lazy: pl.LazyFrame) -> int:
    rows, first = lazy.select(pl.len()).collect().item(), lazy.head(_SAMPLE).collect()
    return int(first.estimated_size() * rows // max(1, first.height))


def _dimensions(schema: pl.Schema) -> dict[str, int]:
    return {name: 2 if isinstance(t, pl.List | pl.Array) else 1 for name, t in schema.items()}


def _arrays(
    frame: pl.DataFrame,
    numbers: Sequence[str],
    labels: Sequence[str],
    text: bool = False,
    start: int = 0,
) -> Columns:
    columns = {name: _as_array(frame[name], start) for name in numbers}
    for name in labels:
        if name not in columns:
            columns[name] = _as_whole(frame[name]) if text else _as_array(frame[name], start)
    return columns


def _as_array(series: pl.Series, start: int = 0) -> Array:
    """Return a column of lists as (n, h), of numbers as they are, of anything else as text.

    ``start`` is the first row of a piece of it, for messages.
    """
    _refuse_missing(series, start)
    if isinstance(series.dtype, pl.List):
        series = series.list.to_array(_width(series, start))
    try:
        if isinstance(series.dtype, pl.Array):
            if series.explode().null_count():
                row = int(series.arr.eval(pl.element().is_null()).arr.any().arg_true()[0])
                raise DataError(
                    f"every place of '{series.name}' must hold a number, but row {start + row} "
                    "lacks one"
                )
            return series.to_numpy()
        if _has_numbers(series.dtype):
            return series.to_numpy()
        return series.cast(pl.String).to_numpy()  # as objects: a label may be of any length
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"'{series.name}' must hold numbers or text, got {series.dtype}, which cannot be read "
            "as either"
        ) from error


def _as_whole(series: pl.Series) -> Array:
    """Return a column of text as whole numbers if all of it is."""
    whole = series.null_count() < len(series) and series.str.contains(_WHOLE).all()
    return _as_array(series.cast(pl.Int64) if whole else series)


def _width(series: pl.Series, start: int = 0) -> int:
    """Return the one length that all lists have."""
    lengths = series.list.len()
    usual = int(lengths[0]) if len(lengths) else 0
    odd = (lengths != usual).arg_true()
    if len(odd):
        row = int(odd[0])
        raise ShapeError(
            f"lists in '{series.name}' must be of one length, got {usual} numbers in row {start} "
            f"and {int(lengths[row])} in row {start + row}"
        )
    return usual


def _has_numbers(dtype: pl.DataType) -> bool:
    """Return whether numpy has such numbers: not those of 128 bits, nor decimals."""
    return dtype.is_float() or (dtype.is_integer() and str(dtype) not in ("Int128", "UInt128"))


def _decoded(series: pl.Series) -> pl.Series:
    """Read lists that are written as text: [0.1, 0.2]."""
    try:
        return series.str.json_decode(pl.List(pl.Float64))
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"'{series.name}' must hold numbers, or lists such as [0.1, 0.2] in every row, got "
            f"{short(series[0])}: write one column for each number, or a .parquet file"
        ) from error


def _refuse_text(frame: pl.DataFrame) -> None:
    """Name the first place where there is text in place of a number."""
    for series in frame:
        bad = (series.is_not_null() & series.cast(pl.Float64, strict=False).is_null()).arg_true()
        if len(bad):
            row = int(bad[0])
            raise DataError(
                f"column '{series.name}' must hold numbers, got '{short(series[row])}' in row {row}"
            )


def _refuse_missing(series: pl.Series, start: int) -> None:
    if missing := series.null_count():
        row = start + int(series.is_null().arg_true()[0])
        raise DataError(
            f"every row of '{series.name}' must have a value, got {missing} missing, the first in "
            f"row {row}"
        )


def _refuse_repeated(path: Path, names: Sequence[str]) -> None:
    for name in names:
        found = _REPEATED.match(name)
        if found and found[1] in names:
            raise FileFormatError(f"{path} has two columns named '{found[1]}': rename one")


def _refuse_mixed(path: Path, series: pl.Series) -> None:
    """Refuse numbers beside text as labels, which polars would make text of."""
    if not series.drop_nulls().str.contains(r"^-?[0-9.]+$|^true$|^false$").any():
        return
    first: tuple[int, str] | None = None
    with reading(path, "a file of JSON lines"), path.open(encoding="utf-8") as file:
        for row, line in enumerate(line for line in file if line.strip()):
            kind = type(json.loads(line).get(series.name)).__name__
            first = first or (row, kind)
            if kind != first[1]:
                raise LabelError(
                    f"labels '{series.name}' must be of one type, got {first[1]} in row "
                    f"{first[0]} and {kind} in row {row}"
                )


def _named(codes: Array, column: str, names: list[str]) -> Array:
    """Return the names of classes for their numbers."""
    bad = np.flatnonzero((codes < 0) | (codes >= len(names)))
    if len(bad):
        raise LabelError(
            f"classes of '{column}' must be from 0 to {len(names) - 1}, got {codes[bad[0]]} in row "
            f"{bad[0]}: rows without a label cannot be learned from"
        )
    return np.array(names, dtype=object)[codes]


def _is_pandas(frame: object) -> bool:
    return type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns")


def _from_pandas(frame: Any) -> pl.DataFrame:
    """Take over a frame column by column: by itself it would need pyarrow."""
    names = [str(name) for name in frame.columns]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"the frame has two columns named '{name}': rename one")
    columns = {}
    for place, name in enumerate(names):
        column = frame.iloc[:, place]
        plain = column.dtype.kind in "biuf" and not column.isna().any()
        values = column.to_numpy() if plain else [_plain(v) for v in column.tolist()]
        columns[name] = pl.Series(name, values, strict=False)
    return pl.DataFrame(columns)


def _plain(value: Any) -> Any:
    """Return None for what pandas has in place of a missing value, and lists for arrays."""
    if isinstance(value, np.ndarray | list | tuple):
        return [float(x) for x in value]
    return None if value is None or value != value or str(value) == "<NA>" else value  # noqa: PLR0124


def _from_arrow(frame: Any) -> pl.DataFrame:
    if not hasattr(frame, "__arrow_c_stream__"):
        raise ArgumentError(
            "frame must be one of pandas or polars, or have the Arrow interface, got "
            f"{kind_of(frame)}"
        )
    try:
        return pl.DataFrame(frame)
    except Exception as error:  # an object may raise anything
        raise DataError(f"cannot read {kind_of(frame)} as a table: {error}") from error
