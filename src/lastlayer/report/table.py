"""The tables of a page: cells of words and numbers under a header; as CSV, Markdown and LaTeX."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

Row: TypeAlias = dict[str, Any]  # of a sheet, by column
_MARKS = {c: f"\\{c}" for c in "\\`*[]~"} | {"<": "&lt;", ">": "&gt;", "|": "&#124;"}
_TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "[": "{[}",  # at the beginning of a row it would belong to the end of the one before
    "]": "{]}",
    "*": "{*}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "−": "$-$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "²": "$^2$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "⅔": "2/3",
    "∠": r"$\angle$",
    "×": r"$\times$",
    "°": r"$^\circ$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "–": "--",
}


@dataclass(frozen=True)
class Cell:
    """What is read, and what the column is sorted by."""

    text: str
    value: float | str | None = None  # None: last, however the column is sorted
    picture: str = ""  # a data: address, shown in place of the text
    link: str = ""  # where the text leads

    @property
    def is_number(self) -> bool:
        """Whether it stands on the right."""
        return isinstance(self.value, int | float)


@dataclass(frozen=True)
class Table:
    """A table with its caption; all rows are as long as the header."""

    about: Sequence[str]  # what makes it different from all others; its name is made of it
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    marked: Collection[int] = ()  # rows that stand out, by their place
    name: str = ""  # of its files; given when the page is put together


def words(text: str | None) -> Cell:
    """Return a cell of text."""
    return Cell(text or "", text or None)


def number(value: float | None, digits: int = 2, sign: bool = False) -> Cell:
    """Return a cell with a number; an empty one where there is none.

    >>> number(0.5, sign=True).text, number(8, digits=0).text
    ('+0.50', '8')
    """
    if value is None:
        return Cell("")
    return Cell(f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−"), value)


def short(value: float | None) -> Cell:
    """Return a cell with a number as it is typed; an empty one where there is none.

    >>> short(0.01).text
    '0.01'
    """
    return Cell("") if value is None else Cell(f"{value:g}", value)


def spread(mean: float | None, deviation: float | None, note: str = "") -> Cell:
    """Return a cell with a mean and its deviation, sorted by the mean.

    A deviation that would be printed as zero is left out: most often nothing was random.

    >>> spread(66.9, 0.021).text, spread(66.9, 1e-14).text
    ('66.90 ± 0.02', '66.90')
    """
    if mean is None:
        return Cell(note)
    around = f" ± {deviation:.2f}" if round(deviation or 0, 2) else ""
    return Cell(f"{mean:.2f}{around}{note}", mean)


def mean_of(row: Row) -> Cell:
    """Return a cell with the mean and the deviation of a sheet's row."""
    return spread(row["mean"], row["deviation"])


def across(
    part: pl.DataFrame,
    column: str,
    values: Iterable[object],
    cell: Callable[[Row], Cell] = mean_of,
) -> list[Cell]:
    """Return a cell for each value of a column, from the row that has it; else an empty one."""
    by = {row[column]: row for row in part.iter_rows(named=True)}
    return [cell(by[value]) if value in by else Cell("") for value in values]


def markdown(table: Table) -> str:
    """Write a table in Markdown, as GitHub reads it; nothing in it is markup but the table."""
    rows = [table.header, *([cell.text for cell in row] for row in table.rows)]
    lines = ["| " + " | ".join(map(plain, row)) + " |" for row in rows]
    numeric = [_numeric(table, column) for column in range(len(table.header))]
    rule = "|" + "|".join("---:" if right else "---" for right in numeric) + "|"
    caption = re.sub(r"^(?=[#+=-])|^(\d+)(?=[.)])", r"\1\\", plain(table.caption))
    return "\n".join([caption, "", lines[0], rule, *lines[1:], ""])


def latex(table: Table) -> str:
    """Write a table in LaTeX, for any document class.

    It needs no package, unless names of classes or files do: they are written as they are.
    """
    columns = "".join("r" if _numeric(table, c) else "l" for c in range(len(table.header)))
    rows = [[cell.text for cell in row] for row in table.rows]
    lines = [" & ".join(map(_latex, row)) + r" \\" for row in [table.header, *rows]]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{_latex(table.caption)}}}",
            f"  \\label{{tab:{table.name}}}",
            f"  \\begin{{tabular}}{{{columns}}}",
            r"    \hline",
            f"    {lines[0]}",
            r"    \hline",
            *(f"    {line}" for line in lines[1:]),
            r"    \hline",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _numeric(table: Table, column: int) -> bool:
    filled = [row[column] for row in table.rows if row[column].text]
    return bool(filled) and all(cell.is_number for cell in filled)


def plain(text: str) -> str:
    """Keep a text on its line and free of markup: HTML, links, emphasis, bars."""
    one_line = re.sub(r"&(?=#?\w+;)", "&amp;", " ".join(text.split()))
    text = "".join(_MARKS.get(character, character) for character in one_line)
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # within a word it is no markup
    return text.replace("://", "&#58;//")  # an address would become a link


def _latex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))
