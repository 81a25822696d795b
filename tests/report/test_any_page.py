"""Any list of sections becomes one page: escaped, with named figures and marked rows."""

from pathlib import Path

import altair as alt
import pytest

from lastlayer.report import drawing
from lastlayer.report.charts import DATA
from lastlayer.report.page import Page as Content
from lastlayer.report.page import make_page, write_page
from lastlayer.report.section import Figure, Panel, Section, name_all
from lastlayer.report.table import Table, number, words
from read_page import Page

HOSTILE = "</script><b>&"


@pytest.fixture(autouse=True)
def _no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "javascript", lambda: ("", "there is no renderer"))


def content() -> Content:
    chart = alt.Chart(DATA).mark_point().encode(x="x:Q")
    figure = Figure(("a chart",), "A chart", chart, [{"x": 1, "name": HOSTILE}])
    rows = [[words("first"), number(1)], [words(HOSTILE), number(2)]]
    table = Table(("a", "table"), "A table", ("who", "how many"), rows, marked=[1])
    sections = [
        Section("one", "One", ["said", HOSTILE], [Panel("A caption", [figure])], listed=True),
        Section("two", "Two", ["said", "again"], tables=[table]),
        Section("three", "Three", code="typed = 1"),
    ]
    return Content("A title", "An answer.", "How to read it.", name_all(sections), ["A notice"])


def test_a_list_of_sections_becomes_a_page(tmp_path: Path) -> None:
    write_page(content(), tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    assert page.sections == ["one", "two", "three"]
    assert page.tables["a-table"][1:] == [["first", "1.00"], [HOSTILE, "2.00"]]
    assert page.specs["a-chart"]["datasets"]["rows"][0]["name"] == HOSTILE
    for text in ("A title", "An answer.", "How to read it.", "A notice", "typed = 1"):
        assert text in page.words
    assert [given.get("class") for tag, given in page.tags if tag == "tr"] == [None, None, "marked"]
    assert "The charts are missing on this page: there is no renderer." in page.words


def test_nothing_in_it_is_markup() -> None:
    text = make_page(content())
    assert "<b>" not in text
    assert text.count('<ul class="words">') == 1
