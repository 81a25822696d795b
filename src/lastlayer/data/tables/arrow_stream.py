"""Arrow streams, read some record batches at a time: the library would read them whole.

A stream is a row of messages: the schema, dictionaries, and record batches. What lies before the
first record batch, with some of those that follow, is a small stream of its own.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import polars as pl

from lastlayer.core.files import reading
from lastlayer.errors import FileFormatError

_CONTINUES, _END = b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x00\x00\x00\x00"
_RECORDS = 3  # the kind of a message that holds rows
_KIND, _BODY = 1, 3  # fields of a message: its kind, and the bytes that follow it
_AT_ONCE = 8 << 20  # bytes of record batches that make a piece


def schema_of(path: Path) -> pl.Schema:
    """Return the columns of a stream, without its rows."""
    begin = b"".join(message for kind, message in _messages(path, rows=False) if kind != _RECORDS)
    return _frame(path, begin).schema


def pieces(path: Path) -> Iterator[pl.DataFrame]:
    """Read a stream front to back, some record batches at a time."""
    begin, waiting = b"", b""
    for kind, message in _messages(path):
        if kind != _RECORDS:
            begin += message
            continue
        waiting += message
        if len(waiting) >= _AT_ONCE:
            yield _frame(path, begin + waiting)
            waiting = b""
    if waiting:
        yield _frame(path, begin + waiting)


def _frame(path: Path, messages: bytes) -> pl.DataFrame:
    with reading(path, "an Arrow stream"):
        return pl.read_ipc_stream(io.BytesIO(messages + _END))


def _messages(path: Path, rows: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the bytes of each message; without rows, those before the first row."""
    with reading(path, "an Arrow stream"), path.open("rb") as file:
        while True:
            begin = file.read(4)
            size = file.read(4) if begin == _CONTINUES else begin
            if len(size) < 4 or not int.from_bytes(size, "little"):
                return
            about = _take(file, path, int.from_bytes(size, "little"))
            kind = _field(about, _KIND, 1)
            if kind == _RECORDS and not rows:
                return
            head = _CONTINUES + size if begin == _CONTINUES else size
            yield kind, head + about + _take(file, path, _field(about, _BODY, 8))


def _take(file: BinaryIO, path: Path, size: int) -> bytes:
    taken = file.read(size)
    if len(taken) < size:
        raise FileFormatError(f"{path} is cut off, damaged, or not an Arrow stream")
    return taken


def _field(about: bytes, number: int, size: int) -> int:
    """Read a field of a message: a FlatBuffer, whose table says where each of them lies."""
    table = int.from_bytes(about[:4], "little")
    places = table - int.from_bytes(about[table : table + 4], "little", signed=True)
    at = 4 + 2 * number
    if places < 0 or at + 2 > int.from_bytes(about[places : places + 2], "little"):
        return 0
    place = int.from_bytes(about[places + at : places + at + 2], "little")
    return int.from_bytes(about[table + place : table + place + size], "little") if place else 0
