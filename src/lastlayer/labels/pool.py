"""Rows that may be labelled next, some at a time: there may be more than the memory holds."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import choice
from lastlayer.data.feature_columns import check_width, columns_in_order
from lastlayer.data.from_arrays import as_features
from lastlayer.data.rows import CHOICES, Source, is_table, read_rows
from lastlayer.data.table_rows import TableRows
from lastlayer.data.tables import Array, open_table
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import OptionError

AT_ONCE = 1 << 21  # features of a piece
MOST_ROWS = 1 << 14  # and rows, where their number is not known


class Piece(NamedTuple):
    """Some rows of a pool."""

    split: str
    first: int  # the place of the first one in its split
    z: Tensor  # (n, h)
    also: dict[str, Array]


def pieces(
    pool: Source | Tensor, rows: str, embedding: str | None, also: Sequence[str],
    columns: Sequence[str] = (),
) -> Iterator[Piece]:  # fmt: skip
    """Yield the rows of a pool in their order: a table piece by piece, and all of its splits.

    ``also`` are further columns to yield, ``columns`` those that a head has learned, in order.
    """
    choice(rows, CHOICES, "rows")
    if isinstance(pool, Tensor):
        if also:
            raise OptionError("id and show name columns, and a tensor has none")
        yield from _cut("", as_features(pool), {})
    elif isinstance(pool, str | os.PathLike) and is_table(pool):
        yield from _of_table(pool, embedding, also, columns)
    else:
        for part in read_rows(pool, rows, embedding=embedding, labelled=False, also=also):
            z = columns_in_order(part.z, part.columns, columns) if columns else part.z
            yield from _cut(part.split, z, dict(part.also))


def _of_table(
    path: str | os.PathLike[str], embedding: str | None, also: Sequence[str], columns: Sequence[str]
) -> Iterator[Piece]:
    selection = Selection("all", embedding, split="", labelled=False, domains=also, columns=columns)
    for split, table in open_table(path).items():
        first = 0
        for piece in TableRows(table, selection).pieces(MOST_ROWS):
            z = as_features(piece.z)
            z = columns_in_order(z, piece.embedding, columns) if columns else z
            named = {name: piece.columns[name] for name in also}
            for part in _cut(piece.split or split, z, named):
                yield part._replace(first=first + part.first)
            first += len(z)


def _cut(split: str, z: Tensor, also: dict[str, Array]) -> Iterator[Piece]:
    size = max(AT_ONCE // z.shape[1], 1)
    for first in range(0, len(z), size):
        named = {name: values[first : first + size] for name, values in also.items()}
        yield Piece(split, first, z[first : first + size], named)


class Kept:
    """The rows of a pool with the largest scores, at most so many, whatever the pool's size.

    >>> kept = Kept(2)
    >>> piece = Piece("", 0, torch.tensor([[5.0], [6.0], [7.0]]), {})
    >>> kept.add(piece, torch.tensor([1.0, 3.0, 2.0]))
    >>> kept.z.flatten().tolist(), kept.row.tolist()
    ([6.0, 7.0], [1, 2])
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.z, self.score = torch.empty(0, 0), torch.empty(0, dtype=torch.float64)
        self.row = torch.empty(0, dtype=torch.int64)
        self.split: Array = np.empty(0, dtype=object)
        self.also: dict[str, Array] = {}

    def add(self, piece: Piece, score: Tensor) -> None:
        """Take in rows with their scores (n,)."""
        first = not len(self.score)
        row = torch.arange(piece.first, piece.first + len(score))
        split: Array = np.full(len(score), piece.split, dtype=object)
        score, z = torch.cat([self.score, score.double()]), piece.z.float()
        # A stable sort: of equal scores the earlier rows stay.
        best = score.argsort(descending=True, stable=True)[: self.most]
        self.z = (z if first else torch.cat([self.z, z]))[best]
        self.score, self.row = score[best], torch.cat([self.row, row])[best]
        place = best.numpy()
        self.split = np.concatenate([self.split, split])[place]
        for name, values in piece.also.items():
            joint = values if first else np.concatenate([self.also[name], values])
            self.also[name] = joint[place]

    def __len__(self) -> int:
        return len(self.score)


def checked(piece: Piece, width: int) -> Tensor:
    """Return the features of a piece, which must be as wide as those learned."""
    check_width(piece.z.shape[1], width)
    return piece.z
