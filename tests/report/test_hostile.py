"""Names, cells and a renderer that would break a page: it is made all the same, and says so."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.report import drawing, write
from lastlayer.report.drawing import draw
from lastlayer.report.section import LONGEST, file_names
from lastlayer.report.sheet import Sheet, clean, texts
from lastlayer.report.table import Table, latex, markdown, words
from made_up import Stream, write_study
from read_page import Page

CONTROL = [f"a{chr(code)}b" for code in (0, 1, 8, 11, 12, 14, 31, 127, 133, 0xFFFE, 0xFFFF)]
SPEC = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "data": {"values": [{"x": 1}]},
    "mark": "bar",
    "encoding": {"x": {"field": "x", "type": "quantitative"}},
}


def test_control_characters_in_names_of_classes_are_drawn_safely(tmp_path: Path) -> None:
    names = [*CONTROL, "tab\tand\nline", "\ud800"]
    stream = Stream(n_classes=13, heads=("linear",), orders=(0,), names=names)
    page = Page(write(write_study(tmp_path, [stream])))
    assert "could not be written" not in page.words
    assert "norms-norm-cifar10-resnet20-cifar100" in page.specs
    for name in page.specs:
        assert (tmp_path / "figures" / f"{name}.pdf").is_file()
    assert "a�b" in (tmp_path / "tables" / "norms.csv").read_text(encoding="utf-8")


@given(st.text())
def test_a_clean_text_is_clean(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert all(c in "\n\t" or (c.isprintable() or ord(c) > 159) for c in cleaned)
    cleaned.encode()


def test_names_that_look_alike_have_files_of_their_own(tmp_path: Path, undrawn: None) -> None:
    alike = ("a-b.safetensors", "a.b.safetensors", "A b safetensors")
    long = ("x" * 200 + "1", "x" * 200 + "2", "猫" * 120)
    streams = [
        Stream("incremental:5", name, heads=("linear",), orders=(0,)) for name in (*alike, *long)
    ]
    page = Page(write(write_study(tmp_path, streams)))
    ids = [given["id"] for _, given in page.tags if "id" in given]
    assert len(ids) == len(set(ids))
    assert len([name for name in page.specs if name.startswith("accuracy-")]) == 6
    for name in page.specs:
        assert (tmp_path / "figures" / f"{name}.svg").is_file()
        assert len(name.encode()) <= LONGEST


@given(st.lists(st.lists(st.text(max_size=300), min_size=1, max_size=3), max_size=8))
def test_names_are_unique_and_short(abouts: list[list[str]]) -> None:
    names = file_names([("topic", *about) for about in abouts])
    assert len({name.lower() for name in names}) == len(abouts)
    assert all(0 < len(name.encode()) <= LONGEST and "/" not in name for name in names)


SHEET = Sheet("odd", texts("a", "b"), lambda study: None)
cells = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"])) | st.sampled_from(
    ["=1+1", "+1", "-1", "@x", "'=1", "''-1", "\t=1", "it's", "'quoted'", "=cmd|' /C calc'!A0"]
)


@given(st.lists(st.tuples(cells, cells), min_size=1))
def test_no_cell_is_a_formula_and_all_are_read_back(rows: list[tuple[str, str]]) -> None:
    table = pl.DataFrame(rows, schema=dict(SHEET.columns), orient="row")
    written = SHEET.write(table)
    raw = pl.read_csv(written, infer_schema=False)
    assert not [cell for row in raw.rows() for cell in row if (cell or "")[:1] in tuple("=+-@\t")]
    again = SHEET.read(written, "odd.csv")
    assert again is not None
    assert again.with_columns(pl.all().fill_null("")).rows() == rows


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"),
        ("[click](javascript:alert(1))", r"\[click\](javascript:alert(1))"),
        (r"a\|b", r"a\\&#124;b"),
        ("`code` *bold* _it_ a_b ~~gone~~", r"\`code\` \*bold\* \_it\_ a_b \~\~gone\~\~"),
        ("https://example.com", "https&#58;//example.com"),
        ("&lt;b&gt;", "&amp;lt;b&amp;gt;"),
        ("# title", r"\# title"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
    ],
)
def test_markdown_is_a_table_and_nothing_else(text: str, written: str) -> None:
    lines = markdown(Table(("t",), text, ("x",), [[words(text)]])).split("\n")
    assert lines[0] == written
    block = text[0] in "#-1"
    assert lines[4] == f"| {text if block else written} |"


@pytest.mark.parametrize(("text", "written"), [("[1ex]", "{[}1ex{]}"), ("*", "{*}")])
def test_a_cell_is_no_argument_of_the_row_before(text: str, written: str) -> None:
    assert written in latex(Table(("t",), text, ("x",), [[words("a")], [words(text)]]))


DIES = """
import os, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import draw_charts
keep = draw_charts._keep
draw_charts._keep = lambda path, content: os.abort() if b"boom" in content else keep(path, content)
draw_charts.main(Path(sys.argv[1]), sys.argv[2])
"""


def test_a_renderer_that_dies_costs_one_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dies.py"
    program.write_text(DIES.format(folder=str(drawing.PROGRAM.parent)))
    monkeypatch.setattr(drawing, "PROGRAM", program)
    bad = {**SPEC, "title": "boom"}
    drawn = draw({"a": SPEC, "bad": bad, "c": SPEC, "odd": {**SPEC, "mark": "no such mark"}})
    assert set(drawn.files) == {"a.svg", "a.pdf", "c.svg", "c.pdf"}
    assert drawn.missing["bad"].startswith("the chart renderer ended by signal 6")
    assert "rror" in drawn.missing["odd"]


def test_a_chart_is_the_same_whatever_is_drawn_beside_it() -> None:
    """The renderer counts colour ramps on from chart to chart; and many have several renderers."""
    values = [{"x": n, "y": n} for n in range(3)]
    colour = {"field": "y", "type": "quantitative"}
    ramp = {**SPEC, "data": {"values": values}, "encoding": {"x": {"field": "x"}, "color": colour}}
    alone = draw({"ramp": ramp}).files["ramp.svg"]
    assert b"gradient_0" in alone
    names = [f"ramp-{n}" for n in range(2 * drawing.ENOUGH)]
    many = draw(dict.fromkeys(names, ramp))
    assert not many.missing
    assert {many.files[f"{name}.svg"] for name in names} == {alone}


def test_the_page_says_which_charts_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dies.py"
    program.write_text("import os; os.abort()")
    monkeypatch.setattr(drawing, "PROGRAM", program)
    drawing._javascript.cache_clear()
    study = write_study(tmp_path / "study", [Stream(heads=("mean", "slda"), orders=(0,))])
    page = Page(write(study))
    assert "These charts could not be written to figures/: summary, ranking-cifar10-" in page.words
    assert "The charts are missing on this page: the chart renderer ended by signal 6" in page.words
    assert page.rows("accuracy-cifar10-resnet20-cifar100")[0]["head"] == "mean"
    assert (study / "results.sqlite").is_file()


LIMITED = """
import resource, sys
from lastlayer.report import write
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
print(write(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited so on Linux only")
def test_a_report_under_a_limit_of_memory(tmp_path: Path) -> None:
    study = write_study(tmp_path, [Stream(heads=("mean",), orders=(0,))])
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(study)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    page = Page(study / "report.html")
    drawn = all((study / "figures" / f"{name}.svg").is_file() for name in page.specs)
    assert drawn or "These charts could not be written to figures/" in page.words


def test_a_path_names_one_folder(tmp_path: Path, undrawn: None) -> None:
    for name, head in (("s1", "slda"), ("s[1]", "mean")):
        write(write_study(tmp_path / name, [Stream(heads=(head,), orders=(0,))]))
        (tmp_path / name / "results.sqlite").unlink()
    page = Page(write(tmp_path / "s[1]"))
    assert "mean is the only head of this study" in page.words
    assert "slda" not in page.words
