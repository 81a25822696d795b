"""The page in a real browser: it draws, switches, sorts, and asks nothing of other machines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browser, find_browser
from made_up import HUNDRED, Stream, write_study

from lastlayer.report import write

pytestmark = pytest.mark.skipif(
    find_browser() is None,
    reason="no Chromium here: on Debian and Ubuntu it is installed by: apt install chromium",
)

DOCS = Path(__file__).parents[2] / "docs" / "figures"
# What every chart must have drawn: marks with a size, within the chart.
MARKS = """
charts.map((chart) => [chart.id, [...chart.querySelectorAll(
  ".mark-rect path, .mark-line path, .mark-symbol path, .mark-area path, .mark-rule line")]
  .map((mark) => mark.getBoundingClientRect()).filter((box) => box.width + box.height > 0).length])
"""
DRAW = "drawAll().then(() => true)"
# How far the text of a figure reaches beyond it, whatever font the browser has.
BEYOND = """(() => {
  const width = document.documentElement.width.baseVal.value
  return Math.max(...[...document.querySelectorAll("text")]
    .filter((text) => text.textContent.trim()).map((text) => text.getBoundingClientRect())
    .map((box) => Math.max(-box.left, box.right - width)))
})()"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def fine(opened: Browser, page: Path, width: int) -> None:
    """Open a page, draw all its charts, and find nothing wrong."""
    opened.events.clear()
    opened.open(page, width)
    opened.run(DRAW)
    assert opened.errors == []
    assert {url for url in opened.requests if not url.startswith("data:")} == {
        page.resolve().as_uri()
    }
    marks = dict(opened.run(MARKS))
    assert marks, "there are no charts"
    assert min(marks.values()) > 0, marks
    assert opened.run("document.documentElement.scrollWidth") <= width, "the page is too wide"


def test_it_draws_everything_and_asks_for_nothing(opened: Browser, folder: Path) -> None:
    fine(opened, folder / "report.html", 1280)


def test_it_fits_a_phone(opened: Browser, folder: Path) -> None:
    fine(opened, folder / "report.html", 400)
    widest = "Math.max(...charts.map((c) => c.querySelector('svg').getBoundingClientRect().right))"
    assert opened.run(widest) <= 400


def test_no_figure_cuts_its_text(opened: Browser, folder: Path) -> None:
    figures = (folder / "figures").glob("*.svg")
    beyond = {}
    for path in [*figures, *DOCS.glob("*.svg")]:
        opened.open(path, 1280)
        beyond[path.name] = opened.run(BEYOND)
    assert max(beyond.values()) <= 0, {name: n for name, n in beyond.items() if n > 0}


def test_charts_are_drawn_when_they_are_scrolled_to(opened: Browser, folder: Path) -> None:
    opened.open(folder / "report.html", 1280)
    opened.wait("charts[0].dataset.drawn")
    last = "charts[charts.length - 1]"
    assert not opened.run(f"{last}.dataset.drawn")
    opened.run(f"{last}.scrollIntoView()")
    opened.wait(f"{last}.dataset.drawn")


def test_the_legend_switches_heads(opened: Browser, folder: Path) -> None:
    opened.open(folder / "report.html", 1280)
    chart = "document.querySelector('#accuracy .chart')"
    opened.run(f"{chart}.scrollIntoView()")
    opened.wait(f"{chart}.dataset.drawn")
    lines = f"{chart}.querySelectorAll('.mark-line path').length"
    button = "document.querySelector('#accuracy [data-head=slda]')"
    pressed = f"{button}.getAttribute('aria-pressed')"
    before = opened.run(lines)
    assert (before, opened.run(pressed)) == (9, "true")
    opened.run(f"{button}.click()")
    opened.wait(f"{lines} === 8")
    assert opened.run(pressed) == "false"
    opened.run(f"{button}.focus()")
    opened.press(" ")
    opened.wait(f"{lines} === 9")
    opened.run("document.querySelector('#accuracy [data-show=all]').click()")
    opened.wait(f"{lines} === 19")


def test_tables_sort_by_click_and_by_key(opened: Browser, folder: Path) -> None:
    opened.open(folder / "report.html", 1280)
    table = "document.querySelector('#table-summary')"
    column = f"[...{table}.tBodies[0].rows].map((row) => Number(row.cells[3].dataset.value))"
    head = f"{table}.tHead.rows[0].cells[3]"
    before = opened.run(column)
    opened.run(f"{head}.querySelector('button').click()")
    assert opened.run(column) == sorted(before, reverse=True)
    assert opened.run(f"{head}.getAttribute('aria-sort')") == "descending"
    opened.run(f"{head}.querySelector('button').focus()")
    opened.press("Enter")
    assert opened.run(column) == sorted(before)
    assert opened.run(f"{head}.getAttribute('aria-sort')") == "ascending"


def test_empty_cells_stay_last(opened: Browser, folder: Path) -> None:
    opened.open(folder / "report.html", 1280)
    table = "document.querySelector('#table-accuracy-cifar10-resnet20-cifar100')"
    rates = f"[...{table}.tBodies[0].rows].map((row) => row.cells[1].textContent)"
    for _ in range(2):
        opened.run(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
        found = opened.run(rates)
        assert found[-4:] == [""] * 4
        assert "" not in found[:-4]


def test_a_tooltip_tells_the_numbers(opened: Browser, folder: Path) -> None:
    opened.open(folder / "report.html", 1280)
    opened.wait("charts[0].dataset.drawn")
    opened.run("charts[0].scrollIntoView()")
    place = opened.run(
        "(() => { const box = charts[0].querySelector('.mark-symbol path').getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    opened.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    opened.wait("!!document.querySelector('#vg-tooltip-element.visible')")
    told = opened.run("document.querySelector('#vg-tooltip-element').textContent")
    assert all(word in told for word in ("mean, %", "deviation", "runs", "3"))


def test_it_prints(opened: Browser, folder: Path) -> None:
    opened.open(folder / "report.html", 1280)
    opened.run(DRAW)
    paper = opened.send("Page.printToPDF", preferCSSPageSize=True)
    assert len(paper["data"]) > 100_000


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(
    "stream",
    [
        Stream(heads=("slda",), orders=(0,)),
        HUNDRED,
        Stream("cub200", "cub200/resnet18", n_classes=200, n_tasks=10, heads=("linear", "slda")),
        Stream("mixed:day/class", "mine", n_classes=4, n_tasks=100, heads=("linear", "mean")),
        Stream(
            "incremental:3",
            "<i>mine</i>",
            n_classes=6,
            n_tasks=3,
            heads=("linear", "weight_norm"),
            names=[
                "</script><script>alert(1)</script>",
                "<b>b</b> & co",
                "猫",
                "كلب",
                "|\n",
                "'\"\\",
            ],
        ),
    ],
    ids=["one head", "100 classes", "200 classes", "100 tasks", "names"],
)
def test_unusual_studies_render(
    opened: Browser, tmp_path: Path, stream: Stream, width: int
) -> None:
    fine(opened, write(write_study(tmp_path, [stream])), width)
