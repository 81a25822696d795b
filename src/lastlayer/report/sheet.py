"""The sheets of a report: tables with declared columns, kept as CSV files.

The page is made from them and from nothing else, so it can be made again from the files alone.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import polars as pl

from lastlayer.errors import FileFormatError
from lastlayer.results import Study

Columns: TypeAlias = dict[str, type[pl.DataType]]
DIGITS = 6
# What no XML, and so no chart, can hold.
UNREADABLE = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff"
# A spreadsheet takes a cell that begins so for a formula, unless an apostrophe stands before it.
FORMULA = "'*[=+\\-@\t\r]"


def _columns(kind: type[pl.DataType], *names: str) -> Columns:
    return dict.fromkeys(names, kind)


# Declare columns: texts("head", "mask").
texts, integers, numbers, truths = (
    partial(_columns, kind) for kind in (pl.String, pl.Int64, pl.Float64, pl.Boolean)
)

# What most sheets hold.
MEAN = numbers("mean", "deviation") | integers("runs")  # over runs, in percent


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table that the page is made from; its columns are declared here and nowhere else."""

    name: str  # of its file, without .csv
    columns: Columns
    make: Callable[[Study], pl.DataFrame | None]  # None: a study of this kind has no such sheet

    def of(self, study: Study) -> pl.DataFrame | None:
        """Make the sheet of a study; a column that is missing or of another type is an error."""
        table = self.make(study)
        if table is None:
            return None
        return cleaned(table.select(self.columns.keys()).cast(pl.Schema(self.columns)))

    def empty(self) -> pl.DataFrame:
        """Return the sheet without rows."""
        return pl.DataFrame(schema=dict(self.columns))

    def write(self, table: pl.DataFrame) -> bytes:
        """Return the content of the file: numbers with six digits, no cell a formula."""
        number = pl.col(pl.Float64)
        finite = pl.when(number.is_finite()).then(number.round_sig_figs(DIGITS)).name.keep()
        cell = pl.col(pl.String)
        plain = pl.when(cell.str.contains(f"^{FORMULA}")).then("'" + cell).otherwise(cell)
        return table.with_columns(finite, plain.name.keep()).write_csv().encode()

    def read(self, content: bytes, where: object) -> pl.DataFrame | None:
        """Return the table from its file, or None if another version wrote other columns."""
        try:
            table = pl.read_csv(content, infer_schema=False)
            if not self.columns.keys() <= set(table.columns):
                return None
            kinds = self.columns.items()
            table = table.select(_typed(name, kind) for name, kind in kinds)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise FileFormatError(_damaged(where, error)) from None
        numbers = table.select(pl.selectors.float())
        if not all(column.is_finite().all() for column in numbers):
            raise FileFormatError(_damaged(where, "a number in it is not finite"))
        return table


def rows_as(columns: Columns, rows: Iterable[Sequence[Any]]) -> pl.DataFrame:
    """Return a table of rows with all columns in their order."""
    return pl.DataFrame(list(rows), schema=dict(columns), orient="row")


def clean(text: str) -> str:
    r"""Return a text that every chart and page can hold; line ends are those of Unix.

    >>> clean("a\x00b\r\n")
    'a�b\n'
    """
    return re.sub(rf"[{UNREADABLE}\ud800-\udfff]", "�", re.sub("\r\n?", "\n", text))


def cleaned(table: pl.DataFrame) -> pl.DataFrame:
    """Clean each text of a table."""
    texts = [name for name, kind in table.schema.items() if kind == pl.String]
    odd = rf"[\r{UNREADABLE}]"
    changed = [name for name in texts if table[name].str.contains(odd).any()]
    return table.with_columns(pl.col(n).map_elements(clean, pl.String) for n in changed)


def _typed(name: str, kind: type[pl.DataType]) -> pl.Expr:
    cell = pl.col(name)
    if kind == pl.Boolean:
        return cell.replace_strict({"true": True, "false": False}, return_dtype=pl.Boolean)
    if kind == pl.String:
        return cell.str.replace(f"^'({FORMULA})", "$1")
    return cell.cast(kind)


def _damaged(path: object, error: object) -> str:
    said = str(error).strip().partition("\n")[0]
    return (
        f"{path} is not a table of a report: {said}. It is damaged or of another program: "
        "make it again from the results, or move it away and the page is made without it"
    )
