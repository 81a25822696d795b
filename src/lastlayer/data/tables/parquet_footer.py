"""The rows of a .parquet file and the memory they take, as its footer says before it is unpacked.

The footer is Thrift in its compact form. It holds for each piece of a column how many values it
has, and readers unpack no more than that; so a small file cannot grow beyond what is counted here.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastlayer.errors import FileFormatError

_MAGIC = b"PAR1"
_DEEP = 20  # structures within structures; those of parquet are less deep
_ROW_GROUPS, _CHUNKS, _ROWS, _ABOUT = 4, 1, 3, 3  # fields: of the file, a row group, a chunk
_TYPE, _PATH, _VALUES, _UNPACKED = 1, 3, 5, 6  # and of what is said about a chunk
_STATISTICS, _MISSING = 12, 3  # optional, and in them how many values are missing
_BYTES = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # of a number in memory, by the number of its type
_NUMBERS = (1, 2, 4, 5)  # types: whole numbers and floats, of 4 and 8 bytes
_POINTER = 16  # bytes beside each text


@dataclass(frozen=True)
class Footer:
    """What a footer says."""

    _content: dict[int, Any]

    @property
    def row_groups(self) -> list[int]:
        """How many rows each row group has; one is unpacked as a whole."""
        return [int(group[_ROWS]) for group in self._content[_ROW_GROUPS]]

    def width(self, column: str) -> int | None:
        """Return how many numbers a row of a column has, the same in every row group.

        None: that cannot be told. Whether all rows have as many shows when they are read.
        """
        found = {_width(group, column) for group in self._content[_ROW_GROUPS]}
        return found.pop() if len(found) == 1 else None

    def unpacked_size(self, columns: Collection[str]) -> int:
        """Return how many bytes columns take in memory at most."""
        chunks = [chunk[_ABOUT] for group in self._content[_ROW_GROUPS] for chunk in group[_CHUNKS]]
        return sum(_size(chunk) for chunk in chunks if chunk[_PATH][0].decode() in columns)


def read_footer(path: Path) -> Footer:
    """Read the footer of a file."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(end - 8, 0))
        length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
        if magic != _MAGIC or length + 12 > end:
            raise FileFormatError(f"{path} is damaged, cut off, or not a .parquet file")
        file.seek(end - 8 - length)
        return Footer(_Compact(file.read(length)).structure())


def _width(group: dict[int, Any], column: str) -> int | None:
    own = [c[_ABOUT] for c in group[_CHUNKS] if c[_ABOUT][_PATH][0].decode() == column]
    if len(own) != 1 or own[0][_TYPE] not in _NUMBERS:
        return None
    if own[0].get(_STATISTICS, {}).get(_MISSING) != 0:
        return None  # what is missing counts as a value, and so does an empty list
    values, rows = own[0][_VALUES], group[_ROWS]
    return int(values // rows) if values > rows > 0 and values % rows == 0 else None


def _size(chunk: dict[int, Any]) -> int:
    values, unpacked = max(chunk[_VALUES], 0), max(chunk[_UNPACKED], 0)
    each = _BYTES.get(chunk[_TYPE])
    return int(_POINTER * values + unpacked if each is None else each * values)


class _Compact:
    """Reads Thrift's compact form: structures become dicts by the numbers of their fields."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def structure(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEP:
            raise ValueError("structures are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):  # in a list, truth takes a byte
            return self._byte()
        if kind in (4, 5, 6):
            return self._whole()
        if kind == 7:
            return self._take(8)
        if kind == 8:
            return self._take(self._number())
        if kind in (9, 10):
            head = self._byte()
            n = head >> 4 if head >> 4 < 15 else self._number()
            return [self._value(head & 15, depth) for _ in range(n)]
        if kind == 12:
            return self.structure(depth + 1)
        raise ValueError(f"no footer has a value of kind {kind}")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, n: int) -> bytes:
        taken = self._content[self._at : self._at + n]
        if len(taken) < n:
            raise ValueError("the footer is cut off")
        self._at += n
        return taken

    def _number(self) -> int:
        """Read a number, seven bits a byte, the least first."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a number of the footer has no end")

    def _whole(self) -> int:
        """Read a number that may be below 0, whose sign comes last."""
        number = self._number()
        return number >> 1 ^ -(number & 1)
