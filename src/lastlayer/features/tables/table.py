"""A table: named columns of one value per row, read when they are asked for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastlayer.errors import DataError, ShapeError
from lastlayer.names import look_up

Array = np.ndarray[Any, Any]
Read = Callable[[Sequence[str], Sequence[str]], dict[str, Array]]
Stream = Callable[[Sequence[str], Sequence[str], int, int | None], Iterator[dict[str, Array]]]


@dataclass(frozen=True)
class Table:
    """What a file, or a frame in memory, has in its columns.

    Args:
        source: What it is called in messages.
        columns: The number of dimensions of each column, in the file's order; 2: a row has a
            vector in it.
        get: Reads columns of numbers, and columns of labels, which may be of any type.
        stream: Reads the same, a fixed number of rows at a time, and if wished only the first few;
            None: the file can only be read whole.
        known_width: Says how many numbers a row of a column has, without reading it; None: it
            cannot be told so.
    """

    source: str
    columns: Mapping[str, int]
    get: Read
    stream: Stream | None = None
    known_width: Callable[[str], int | None] = lambda name: None

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> dict[str, Array]:
        """Read some columns, and nothing else; all have one value, or vector, for each row."""
        table = self.get(*self._columns(numbers, labels))
        if self._height(table) == 0:
            raise self._empty()
        return table

    def read_pieces(
        self, numbers: Sequence[str], labels: Sequence[str], rows: int, most: int | None = None
    ) -> Iterator[dict[str, Array]]:
        """Read some columns as ``read`` does, at most that many rows at a time.

        Only that many are in memory, unless the file is of a kind that can only be read whole.

        Args:
            numbers: Columns of numbers.
            labels: Columns of labels.
            rows: How many at a time.
            most: Only the first rows, at most this many, are needed; None: all are.
        """
        if self.stream is None:
            table = self.read(numbers, labels)
            for start in range(0, self._height(table), rows):
                yield {name: values[start : start + rows] for name, values in table.items()}
            return
        n = 0
        for piece in self.stream(*self._columns(numbers, labels), rows, most):
            height = self._height(piece)
            n += height
            for start in range(0, height, rows):  # a reader may give more than it was asked for
                yield {name: values[start : start + rows] for name, values in piece.items()}
            del piece  # before the next one is read
        if n == 0:
            raise self._empty()

    def _columns(
        self, numbers: Sequence[str], labels: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        for name in (*numbers, *labels):
            look_up(name, self.columns, "column")
        further = [name for name in dict.fromkeys(labels) if name not in numbers]
        return list(dict.fromkeys(numbers)), further

    def _height(self, table: Mapping[str, Array]) -> int:
        """Return how many rows there are, the same in every column."""
        first = next(iter(table))
        n = len(table[first])
        for name, values in table.items():
            if len(values) != n:
                raise ShapeError(
                    f"expected {n} values in column '{name}', got {len(values)}: '{first}' of "
                    f"{self.source} has {n}"
                )
        return n

    def _empty(self) -> DataError:
        return DataError(f"expected at least one sample, but {self.source} has no rows")
