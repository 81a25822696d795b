"""Tables as text: in Markdown and in LaTeX."""

import re

from lastlayer.report.table import Table


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


_MARKS = {c: f"\\{c}" for c in "\\`*[]~"} | {"<": "&lt;", ">": "&gt;", "|": "&#124;"}


def plain(text: str) -> str:
    """Keep a text on its line and free of markup: HTML, links, emphasis, bars."""
    one_line = re.sub(r"&(?=#?\w+;)", "&amp;", " ".join(text.split()))
    text = "".join(_MARKS.get(character, character) for character in one_line)
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)  # within a word it is no markup
    return text.replace("://", "&#58;//")  # an address would become a link


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


def _latex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))
