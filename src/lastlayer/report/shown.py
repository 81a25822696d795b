"""Tables as people read them: on the page, in Markdown and in LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """What is read, and what the column is sorted by."""

    text: str
    value: float | str | None = None  # None: last, however the column is sorted

    @property
    def is_number(self) -> bool:
        """Whether it stands on the right."""
        return isinstance(self.value, int | float)


@dataclass(frozen=True)
class Table:
    """A table with its caption; all rows are as long as the header."""

    name: str  # of its files
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def words(text: str | None) -> Cell:
    """Give a cell of text."""
    return Cell(text or "", text or None)


def number(value: float | None, digits: int = 2, sign: bool = False) -> Cell:
    """Give a cell with a number; an empty one where there is none.

    >>> number(0.5, sign=True).text, number(8, digits=0).text
    ('+0.50', '8')
    """
    if value is None:
        return Cell("")
    return Cell(f"{value:{'+' if sign else ''}.{digits}f}".replace("-", "−"), value)


def short(value: float | None) -> Cell:
    """Give a cell with a number as it is typed; an empty one where there is none.

    >>> short(0.01).text
    '0.01'
    """
    return Cell("") if value is None else Cell(f"{value:g}", value)


def spread(mean: float | None, deviation: float | None, note: str = "") -> Cell:
    """Give a cell with a mean and its deviation, sorted by the mean.

    >>> spread(66.9, 0.021).text
    '66.90 ± 0.02'
    """
    if mean is None:
        return Cell(note)
    around = "" if deviation is None else f" ± {deviation:.2f}"
    return Cell(f"{mean:.2f}{around}{note}", mean)


def markdown(table: Table) -> str:
    """Write a table in Markdown."""
    rows = [table.header, *([cell.text for cell in row] for row in table.rows)]
    lines = ["| " + " | ".join(_one_line(text, r"\|") for text in row) + " |" for row in rows]
    numeric = [_numeric(table, column) for column in range(len(table.header))]
    rule = "|" + "|".join("---:" if right else "---" for right in numeric) + "|"
    return "\n".join([table.caption, "", lines[0], rule, *lines[1:], ""])


def latex(table: Table) -> str:
    """Write a table in LaTeX, for any document class.

    It needs no package, unless names of classes or files do: they are written as they are.
    """
    columns = "".join("r" if _numeric(table, c) else "l" for c in range(len(table.header)))
    rows = [[cell.text for cell in row] for row in table.rows]
    lines = [" & ".join(map(_escape, row)) + r" \\" for row in [table.header, *rows]]
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            f"  \\caption{{{_escape(table.caption)}}}",
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


def _one_line(text: str, bar: str) -> str:
    """Keep a cell on its line: no break and no bar of its own, and no HTML."""
    return " ".join(text.split()).replace("|", bar).replace("<", "&lt;")


_TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "−": "$-$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "²": "$^2$",
    "≥": r"$\geq$",
    "∠": r"$\angle$",
    "×": r"$\times$",
    "°": r"$^\circ$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "–": "--",
}


def _escape(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))
