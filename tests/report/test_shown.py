"""Tables in Markdown and LaTeX keep their shape, whatever is written in them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.report.table import Cell, Table, latex, markdown, number, spread, words

TABLE = Table(("t",), "A & B, 5 %.", ("head", "±"), [[words("a_b"), spread(1.5, 0.25)]])


def test_markdown() -> None:
    assert markdown(TABLE) == ("A & B, 5 %.\n\n| head | ± |\n|---|---:|\n| a_b | 1.50 ± 0.25 |\n")


def test_latex() -> None:
    text = latex(TABLE)
    assert r"\caption{A \& B, 5 \%.}" in text
    assert r"\begin{tabular}{lr}" in text
    assert r"a\_b & 1.50 $\pm$ 0.25 \\" in text


@given(st.text())
def test_a_cell_never_breaks_its_row(text: str) -> None:
    table = Table(("t",), "c", ("x", "y"), [[Cell(text), Cell("1", 1)]])
    row = markdown(table).split("\n")[4]
    assert row.replace(r"\|", "").count("|") == 3
    assert "<" not in row
    body = [line for line in latex(table).splitlines() if line.endswith(r"& 1 \\")]
    assert len(body) == 1
    assert body[0].replace(r"\&", "").count("&") == 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_compiles(tmp_path: Path) -> None:
    every = Table(("t",), "½ <x> ~^\\{}$#", ("a", "b"), [[words("x_y & z"), number(-1.5)]])
    document = r"\documentclass{article}\begin{document}" + latex(every) + r"\end{document}"
    (tmp_path / "t.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


def test_numbers_are_written_for_people() -> None:
    assert number(-0.5, sign=True).text == "−0.50"
    assert number(None) == Cell("")
    assert spread(None, None, " (8 diverged)").text == " (8 diverged)"
    assert not words("1.5").is_number
