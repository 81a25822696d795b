"""The page in a real browser: it follows the heads, learns labels, and asks nobody else."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from browser import Browser, browser, find_browser
from conftest import Service, made_up, running, save_head

pytestmark = pytest.mark.skipif(find_browser() is None, reason="there is no Chromium here")
Z, Y = made_up(40, 1)
NOTE = "<img src=x onerror=alert(1)> photos/17.jpg"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def visit(chromium: Browser, service: Service, width: int = 1280) -> None:
    chromium.events.clear()
    url = SimpleNamespace(resolve=lambda: SimpleNamespace(as_uri=lambda: service.url + "/"))
    chromium.open(url, width)  # type: ignore[arg-type]  (a page by its address)


@pytest.mark.parametrize("width", [400, 1280])
def test_it_shows_the_head_and_learns_a_label(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    save_head(tmp_path / "birds.safetensors")
    options = ["--store", tmp_path / "live", "--fresh", "0", "--unknown", "0.1"]
    with running(tmp_path / "birds.safetensors", *options) as service:
        far = [[99.0] * 5]
        service.ask("/predict", {"rows": Z[:1].tolist(), "id": "near"})
        service.ask("/predict", {"rows": far, "id": "a17", "note": NOTE})
        visit(chromium, service, width)
        chromium.wait("document.querySelectorAll('[data-id]').length === 2")
        text = "document.body.innerText"
        assert "A slda head that has learned 168 rows of 3 classes." in chromium.run(text)
        first = "document.querySelector('[data-id]')"
        assert chromium.run(f"{first}.dataset.id") == "a17"
        assert NOTE in chromium.run(f"{first}.innerText")  # as text, and nothing else
        assert "unknown to it" in chromium.run(f"{first}.innerText")
        assert chromium.run("document.documentElement.scrollWidth") <= width
        button = f"{first}.querySelector('button').getBoundingClientRect().right"
        assert 0 < chromium.run(button) <= width  # in sight without scrolling
        assert chromium.run("document.getElementById('login').offsetHeight") == 0
        # Somebody types while the page follows.
        chromium.run(f"{first}.querySelector('input').value = 'owl'")
        service.ask("/learn", {"rows": Z[:2].tolist(), "labels": Y[:2]})
        chromium.wait("document.body.innerText.includes('Changes on the disk\\n1')")
        assert chromium.run(f"{first}.querySelector('input').value") == "owl"
        chromium.run(f"{first}.querySelector('form').requestSubmit()")
        chromium.wait("document.querySelectorAll('[data-id]').length === 1")
        chromium.run("document.querySelector('[data-id] button').click()")
        chromium.wait("document.querySelectorAll('[data-id]').length === 0")
        chromium.wait("document.body.innerText.includes('of 2')")  # two answers are scored
        sure = service.ask("/status")[1]["score"]["sure"]  # of the one that was not turned away
        shown = f"{100 * sure:.1f}\u00a0% on average"
        chromium.wait(f"document.body.innerText.includes('{shown}')")
        status = service.ask("/status")[1]
        assert (status["change"], status["waiting"]) == (3, 0)
        assert service.ask("/predict", {"rows": far})[1]["labels"] == ["owl"]
        assert chromium.errors == []
        assert {url.startswith(service.url + "/") for url in chromium.requests} == {True}
        chromium.send("Page.navigate", url="about:blank")  # before the service ends


def test_it_asks_for_a_token(chromium: Browser, tmp_path: Path) -> None:
    save_head(tmp_path / "birds.safetensors")
    tokens = tmp_path / "tokens"
    tokens.write_text("read 0123456789abcdef\nchange fedcba9876543210\n")
    options = ["--store", tmp_path / "live", "--token-file", tokens]
    with running(tmp_path / "birds.safetensors", *options) as service:
        visit(chromium, service)
        chromium.wait("!document.getElementById('login').hidden")
        assert "slda" not in chromium.run("document.body.innerText")
        for token, shown in (("wrong", "this is no token"), ("0123456789abcdef", "A slda head")):
            chromium.run(f"document.getElementById('token').value = '{token}'")
            chromium.run("document.getElementById('login').requestSubmit()")
            chromium.wait(f"document.body.innerText.includes('{shown}')")
        chromium.send("Page.navigate", url="about:blank")
