"""A table: named columns of one value per row, read a piece at a time or whole."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastlayer.core.names import look_up
from lastlayer.errors import DataError, ShapeError

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]
# Reads columns of numbers and columns of labels, which may be of any type: about how many rows at a
# time (None: all of them), and how many at most are needed (None: all of them).
Stream = Callable[[Sequence[str], Sequence[str], int | None, int | None], Iterator[Columns]]


@dataclass(frozen=True)
class Table:
    """What a file, or a frame in memory, has in its columns."""

    source: str  # what it is called in messages
    columns: Mapping[str, int]  # the dimensions of each, in the file's order; 2: a row is a vector
    stream: Stream
    # How many numbers a row of a column has, without reading it; None where that is not known.
    known_width: Callable[[str], int | None] = lambda name: None

    def read(self, numbers: Sequence[str], labels: Sequence[str], least: int = 1) -> Columns:
        """Read some columns, and nothing else; all have one value, or vector, for each row.

        ``least`` 0: there may be no rows.
        """
        pieces = list(self.read_pieces(numbers, labels, least=least))
        if len(pieces) == 1:
            return pieces[0]
        if not pieces:
            return {name: np.empty(0) for name in (*numbers, *labels)}
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}

    def read_pieces(
        self,
        numbers: Sequence[str],
        labels: Sequence[str],
        rows: int | None = None,
        most: int | None = None,
        least: int = 1,
    ) -> Iterator[Columns]:
        """Read some columns, at most that many rows at a time; None: as many as there are.

        Only that many are in memory, unless the file is of a kind that can only be read whole.
        ``most``: only the first rows, at most so many, are needed; ``least`` 0: there may be none.
        """
        for name in (*numbers, *labels):
            look_up(name, self.columns, "column")
        further = [name for name in dict.fromkeys(labels) if name not in numbers]
        empty = True
        for piece in self.stream(list(dict.fromkeys(numbers)), further, rows, most):
            height = self._height(piece)
            empty = empty and height == 0
            # A reader may give more rows than it was asked for.
            step = rows or max(height, 1)
            for start in range(0, height, step):
                yield {name: values[start : start + step] for name, values in piece.items()}
            # Let go of this piece before the next one is read.
            del piece
        if empty and least:
            raise DataError(f"{self.source} has no rows: at least one is needed")

    def _height(self, table: Columns) -> int:
        """Return how many rows there are, the same in every column."""
        first = next(iter(table))
        n = len(table[first])
        for name, values in table.items():
            if len(values) != n:
                raise ShapeError(
                    f"column '{name}' of {self.source} must have {n} values as '{first}' has, got "
                    f"{len(values)}"
                )
        return n


def at_once(get: Callable[[Sequence[str], Sequence[str]], Columns]) -> Stream:
    """Return the stream of a file that can only be read whole: one piece."""

    def stream(
        numbers: Sequence[str], labels: Sequence[str], rows: int | None, most: int | None
    ) -> Iterator[Columns]:
        yield get(numbers, labels)

    return stream


def by_column(pieces_of: Callable[[str, int | None], Iterator[Array]]) -> Stream:
    """Return the stream of columns that lie apart from one another, each read front to back."""

    def stream(
        numbers: Sequence[str], labels: Sequence[str], rows: int | None, most: int | None
    ) -> Iterator[Columns]:
        names = [*numbers, *labels]
        columns = [pieces_of(name, rows) for name in names]
        while given := [(c, next(column, None)) for c, column in zip(names, columns, strict=True)]:
            there = [values for _, values in given if values is not None]
            if not there:
                return
            # A column that ends early has no rows here, which the table refuses.
            yield {name: there[0][:0] if v is None else v for name, v in given}

    return stream
