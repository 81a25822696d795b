"""The page of advise in a real browser, from a phone to a wide screen, and printed."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import lastlayer as ll
from browser import Browser, browser, find_browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="there is no Chromium here"),
]
HEADS = ["linear", "cosine+single", "mean", "slda", "qda", "random_slda"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 4
    z = 2 * torch.randn(4, 6, generator=random)[y] + torch.randn(400, 6, generator=random)
    path = tmp_path_factory.mktemp("advice") / "advice.html"
    ll.advise(ll.FeatureSet(z, {"y": y}), "incremental:2", heads=HEADS).page(path)
    return path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("width", [400, 800, 1600])
def test_it_draws_all_charts_and_fits_the_screen(chromium: Browser, page: Path, width: int) -> None:
    chromium.open(page, width)
    for number in range(chromium.run("charts.length")):
        chromium.run(f"charts[{number}].scrollIntoView()")
        chromium.wait(f"charts[{number}].dataset.drawn === 'true'")
    assert chromium.run("charts.length") >= 3
    assert chromium.run("document.documentElement.scrollWidth") <= width
    widest = "Math.max(...charts.map((c) => c.querySelector('svg').getBoundingClientRect().right))"
    assert chromium.run(widest) <= width
    assert chromium.errors == []
    assert chromium.requests == [page.resolve().as_uri()] * len(chromium.requests)


def test_it_prints_with_all_charts(chromium: Browser, page: Path) -> None:
    chromium.open(page)
    printed = base64.b64decode(chromium.send("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF")
    assert chromium.run("charts.every((chart) => chart.querySelector('svg') !== null)")


@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_names_and_marks_of_heads_do_not_overlap(chromium: Browser, page: Path, width: int) -> None:
    """In the chart of heads each has a line of its own, on which no text meets a mark."""
    chromium.open(page, width)
    chromium.wait("charts[0].dataset.drawn === 'true'")
    boxes = chromium.run(
        "[...charts[0].querySelectorAll('.mark-symbol path, .mark-text text')]"
        ".filter((e) => e.getBoundingClientRect().width)"
        ".map((e) => { const b = e.getBoundingClientRect();"
        " return [e.tagName, b.left, b.top, b.right, b.bottom]; })"
    )
    texts = [box[1:] for box in boxes if box[0] == "text"]
    marks = [box[1:] for box in boxes if box[0] == "path"]
    assert len(texts) >= 2 * len(HEADS)
    assert len(marks) == len(HEADS) + 1
    for i, one in enumerate(texts):
        for other in [*texts[i + 1 :], *marks]:
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] + 1 or other[3] <= one[1] + 1, (one, other)
