"""What an audit suggests, applied to rows: suspects are left out, or take the suggested label."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import polars as pl
import torch
from torch import Tensor

from lastlayer.core.checks import a_path, short
from lastlayer.data.tables.open_table import one_table
from lastlayer.errors import DataError, OptionError

COLUMNS = ("row", "label", "suggestion")
Suspects = pl.DataFrame | str | os.PathLike[str]


@dataclass(frozen=True)
class Corrections:
    """Rows of a split, the labels they had when they were audited, and suggested ones."""

    rows: Tensor  # (m,) each once
    labels: list[str]
    suggestions: list[str]

    @classmethod
    def read(cls, suspects: Suspects) -> Self:
        """Take the table of an audit, or a file of it."""
        table = suspects if isinstance(suspects, pl.DataFrame) else _read(suspects)
        if missing := [name for name in COLUMNS if name not in table.columns]:
            raise DataError(
                f"suspects must have columns {', '.join(COLUMNS)}, as an audit writes them, but "
                f"lack {', '.join(missing)}"
            )
        try:
            rows = torch.tensor(table["row"].cast(pl.Int64).to_list(), dtype=torch.int64)
        except (pl.exceptions.PolarsError, TypeError) as error:
            raise DataError("the column 'row' of suspects must hold whole numbers") from error
        texts = [
            ["" if x is None else str(x) for x in table[name].to_list()] for name in COLUMNS[1:]
        ]
        if len(rows.unique()) < len(rows):
            raise DataError("suspects must name each row once")
        return cls(rows, *texts)

    def check(self, y: Tensor, names: Sequence[str]) -> None:
        """Refuse suspects of other rows than those with labels ``y`` (n,) of these names."""
        if len(self.rows) and not 0 <= int(self.rows.min()) <= int(self.rows.max()) < len(y):
            raise OptionError(
                f"suspects must be rows 0 to {len(y) - 1} of the same split, got row "
                f"{int(self.rows.max())}"
            )
        found = [names[c] for c in y[self.rows].tolist()]
        for row, has, label in zip(self.rows.tolist(), found, self.labels, strict=True):
            if label not in (has, f"'{has}"):  # as a .csv file has what would begin a formula
                raise DataError(
                    f"the suspects are of other rows: row {row} (counted from 0) is "
                    f"'{short(has)}' here, and was '{short(label)}' when they were audited; audit "
                    "these rows, and take that table"
                )

    def others(self, n: int) -> Tensor:
        """Return which of n rows are no suspects, in their order."""
        stays = torch.ones(n, dtype=torch.bool)
        stays[self.rows] = False
        if not stays.any():
            raise DataError("all rows are suspects: nothing would be left")
        return stays.nonzero().flatten()

    def relabel(self, y: Tensor, names: Sequence[str]) -> tuple[Tensor, tuple[str, ...]]:
        """Return labels (n,) with those that are suggested, and the names of all."""
        if "" in self.suggestions:
            row = int(self.rows[self.suggestions.index("")])
            raise DataError(f"every suspect needs a suggestion, but row {row} has none")
        known = {f"'{name}": name for name in names} | {name: name for name in names}
        suggestions = [known.get(text, text) for text in self.suggestions]
        joint = tuple(dict.fromkeys([*names, *suggestions]))  # a person may add a new one
        number = {name: c for c, name in enumerate(joint)}
        new = torch.tensor([number[text] for text in suggestions], dtype=torch.int64)
        return y.index_copy(0, self.rows, new), joint


def _read(file: str | os.PathLike[str]) -> pl.DataFrame:
    table = one_table(a_path(file, "suspects"))
    wanted: list[Any] = [name for name in COLUMNS if name in table.columns]
    if not wanted:
        return pl.DataFrame()
    # An audit that suspects no row writes a table of none.
    return pl.DataFrame(dict(table.read([], wanted, least=0)))
