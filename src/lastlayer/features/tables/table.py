"""A table: named columns of one value per row, read when they are asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastlayer.errors import DataError, ShapeError
from lastlayer.names import look_up

Array = np.ndarray[Any, Any]
Read = Callable[[Sequence[str], Sequence[str]], dict[str, Array]]


@dataclass(frozen=True)
class Table:
    """What a file, or a frame in memory, has in its columns.

    Args:
        source: What it is called in messages.
        columns: The number of dimensions of each column, in the file's order; 2: a row has a
            vector in it.
        get: Reads columns of numbers, and columns of labels, which may be of any type.
    """

    source: str
    columns: Mapping[str, int]
    get: Read

    def read(self, numbers: Sequence[str], labels: Sequence[str]) -> dict[str, Array]:
        """Read some columns, and nothing else; all have one value, or vector, for each row."""
        for name in (*numbers, *labels):
            look_up(name, self.columns, "column")
        further = [name for name in dict.fromkeys(labels) if name not in numbers]
        table = self.get(list(dict.fromkeys(numbers)), further)
        first = next(iter(table))
        n = len(table[first])
        if n == 0:
            raise DataError(f"expected at least one sample, but {self.source} has no rows")
        for name, values in table.items():
            if len(values) != n:
                raise ShapeError(
                    f"expected {n} values in column '{name}', got {len(values)}: '{first}' has {n}"
                )
        return table
