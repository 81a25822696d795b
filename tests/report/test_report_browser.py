"""The page in a real browser: it draws, switches, sorts, and asks nothing of other machines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser, browser, find_browser, find_fonts
from lastlayer.report import write
from made_up import HUNDRED, Stream, write_study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_browser() is None,
        reason="no Chromium here: on Debian and Ubuntu it is installed by: apt install chromium",
    ),
]

DOCS = Path(__file__).parents[2] / "docs" / "figures"
# What every chart must have drawn: marks with a size, within the chart.
MARKS = """
charts.map((chart) => [chart.id, [...chart.querySelectorAll(
  ".mark-rect path, .mark-line path, .mark-symbol path, .mark-area path, .mark-rule line")]
  .map((mark) => mark.getBoundingClientRect()).filter((box) => box.width + box.height > 0).length])
"""
# How far the text of each figure of a page reaches beyond that figure.
BEYOND = """
Object.fromEntries([...document.querySelectorAll("figure")].map((figure) => {
  const box = figure.querySelector("svg").getBoundingClientRect();
  return [figure.id, Math.max(...[...figure.querySelectorAll("text")]
    .filter((text) => text.textContent.trim()).map((text) => text.getBoundingClientRect())
    .map((it) => Math.max(box.left - it.left, it.right - box.right)))];
}))
"""
# How faint the faintest text of the page is: WCAG's ratio of its colour to that of its ground.
CONTRAST = """
(() => {
  const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const read = [...document.querySelectorAll("h1, h2, h3, p, a, li, td, th, button, summary, pre")];
  return Math.min(...read.filter((each) => each.textContent.trim() && each.offsetParent)
    .map((each) => [light(getComputedStyle(each).color), light(ground(each))])
    .map(([text, behind]) =>
      (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05)));
})()
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module", params=find_fonts(), ids=str)
def in_font(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """The reader's machine decides the font: a browser that has only one."""
    with browser(tmp_path_factory.mktemp("profile"), request.param) as started:
        yield started


def fine(opened: Browser, page: Path, width: int) -> None:
    """Open a page, draw all its charts, and find nothing wrong."""
    opened.events.clear()
    opened.open(page, width)
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


@pytest.mark.parametrize("look", ["light", "dark"])
def test_all_text_can_be_read_in_the_light_and_in_the_dark(
    opened: Browser, folder: Path, look: str
) -> None:
    fine(opened, folder / "report.html", 1000)
    wanted = [{"name": "prefers-color-scheme", "value": look}]
    opened.send("Emulation.setEmulatedMedia", features=wanted)
    ground = opened.run("getComputedStyle(document.body).backgroundColor")
    contrast = opened.run(CONTRAST)
    opened.send("Emulation.setEmulatedMedia", features=[])
    assert (ground == "rgb(255, 255, 255)") == (look == "light")
    assert contrast >= 4.5  # what WCAG asks for


def test_it_fits_a_phone(opened: Browser, folder: Path) -> None:
    fine(opened, folder / "report.html", 400)
    widest = "Math.max(...charts.map((c) => c.querySelector('svg').getBoundingClientRect().right))"
    assert opened.run(widest) <= 400


def test_no_figure_cuts_its_text(in_font: Browser, folder: Path, tmp_path: Path) -> None:
    figures = [*(folder / "figures").glob("*.svg"), *DOCS.glob("*.svg")]
    shown = (
        f'<figure id="{place} {path.name}" style="margin: 0 100px">{path.read_text()}</figure>'
        for place, path in enumerate(figures)
    )
    page = tmp_path / "figures.html"
    page.write_text("\n".join(['<!DOCTYPE html><meta charset="utf-8">', *shown]))
    in_font.open(page, 1280)
    beyond = in_font.run(BEYOND)
    assert len(beyond) == len(figures)
    assert max(beyond.values()) <= 0, {name: n for name, n in beyond.items() if n > 0}


def test_every_chart_is_there_when_the_page_has_loaded(opened: Browser, folder: Path) -> None:
    """Whoever captures the page without scrolling gets them all, and so does a printer."""
    opened.open(folder / "report.html", 1280)
    count = "document.querySelectorAll('.chart svg').length"
    known = opened.send(
        "Page.addScriptToEvaluateOnNewDocument",
        source=f"addEventListener('load', () => {{ window.atLoad = {count}; }})",
    )
    opened.send("Page.navigate", url=(folder / "report.html").resolve().as_uri())
    opened.wait("document.readyState === 'complete' && 'atLoad' in window")
    opened.send("Page.removeScriptToEvaluateOnNewDocument", **known)
    assert opened.run("window.atLoad") == opened.run("charts.length") > 0
    assert opened.run("charts.every((chart) => chart.dataset.drawn === 'true')")


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
    paper = opened.send("Page.printToPDF", preferCSSPageSize=True)
    assert len(paper["data"]) > 100_000
    assert opened.run("[...document.querySelectorAll('details')].every((each) => each.open)")


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


# How far any text of a chart reaches beyond the chart, in pixels.
CUT = """
Math.max(...charts.flatMap((chart) => {
  const box = chart.querySelector("svg").getBoundingClientRect();
  return [...chart.querySelectorAll("text")].filter((text) => text.textContent.trim())
    .map((text) => text.getBoundingClientRect())
    .flatMap((it) => [box.left - it.left, it.right - box.right, it.bottom - box.bottom]);
}))
"""
# The numbers along the axes of accuracies.
NUMBERS = """
charts.filter((chart) => chart.closest("#summary, #ranking, #accuracy, #subsets"))
  .flatMap((chart) => [...chart.querySelectorAll(".role-axis-label text")])
  .map((text) => Number(text.textContent)).filter((number) => !Number.isNaN(number))
"""
# Names of heads in the summary that a reference, a line or a marker runs through.
STRUCK = """
(() => {
  const chart = document.getElementById("figure-summary");
  const boxes = (of) => [...chart.querySelectorAll(of)].map((it) => it.getBoundingClientRect());
  const marks = boxes(".mark-rect path, .mark-rule.role-mark line, .mark-symbol path");
  const beside = (a, b) => a.right <= b.left || b.right <= a.left;
  const above = (a, b) => a.bottom <= b.top || b.bottom <= a.top;
  return boxes(".mark-text.role-mark text")
    .filter((name) => marks.some((mark) => !beside(name, mark) && !above(name, mark))).length;
})()
"""


@pytest.fixture(name="own", scope="module")
def _own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of 150 classes with long names, learned almost wholly: every number is near 100 %."""
    names = [f"yellow-crowned night heron no. {number}" for number in range(150)]
    high = {"final": 0.9991}
    some = {"features": "data/birds.safetensors", "n_classes": 150, "preset": "exact"}
    heads = ("linear", "weight_norm", "cosine+single", "mean", "slda", "random_ridge")
    streams = [
        Stream("incremental:10", n_tasks=10, heads=heads, names=names, extra=high, **some),
        Stream("lifelong:month", n_tasks=5, heads=heads, names=names, extra=high, **some),
        Stream("iid", n_tasks=1, heads=("linear", "slda"), names=names, extra=high, **some),
    ]
    return write(write_study(tmp_path_factory.mktemp("own"), streams))


@pytest.mark.parametrize("width", [400, 700, 1000, 1600])
def test_nothing_is_cut_off_on_any_screen(in_font: Browser, own: Path, width: int) -> None:
    fine(in_font, own, width)
    assert in_font.run(CUT) <= 1
    assert in_font.run(STRUCK) == 0
    numbers = in_font.run(NUMBERS)
    assert len(numbers) > 20
    assert max(numbers) == 100


def test_nothing_of_the_papers_study_is_struck_through(in_font: Browser, folder: Path) -> None:
    in_font.open(folder / "report.html", 1280)
    assert in_font.run("document.querySelectorAll('#figure-summary .mark-rect path').length") > 0
    assert in_font.run(STRUCK) == 0
