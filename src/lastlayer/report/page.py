"""One self-contained page from a list of sections: it works offline, and asks no other machine.

The pages of studies and of advice are made here, and differ only in what is on them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from lastlayer.core.atomic_write import in_place_of
from lastlayer.core.version import __version__
from lastlayer.report import drawing
from lastlayer.report.looks import dash_of, look_of
from lastlayer.report.section import Figure, Section

HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Fact:
    """One of the few things to know first."""

    title: str
    short: str  # the fact, in a few words
    words: Sequence[str] = ()  # a sentence or two on it
    share: float | None = None  # drawn as so many of a hundred squares
    code: str = ""  # to be typed


@dataclass(frozen=True, eq=False)
class Page:
    """What is on a page."""

    title: str
    answer: str  # what a reader came for, in a sentence or two; "": nothing can be said
    about: str  # how to read the page
    sections: Sequence[Section]  # with named figures and tables (``name_all``)
    notices: Sequence[str] = ()  # what a reader must know before anything else
    footer: str = ""
    facts: Sequence[Fact] = ()  # on the first screen, below the answer


def write_page(page: Page, path: Path) -> None:
    """Write a page to a file: whole, or not at all."""
    with in_place_of(path) as unfinished:
        unfinished.write_text(make_page(page), encoding="utf-8")


def make_page(page: Page) -> str:
    """Return a page as HTML; without its charts, and saying so, where they cannot be drawn."""
    bundle, why = "", ""
    if any(section.panels for section in page.sections):
        bundle, why = drawing.javascript()
    missing = [f"The charts are missing on this page: {why}. All tables are there."] if why else []
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_file("page.html.jinja")).render(
        page=page,
        notices=[*page.notices, *missing],
        version=__version__,
        css=Markup(_file("page.css")),
        script=Markup(_file("page.js")),
        # No text within the bundle may end the script.
        bundle=Markup(bundle.replace("</script", "<\\/script")),
        swatch=swatch,
        squares=squares,
        spec=spec,
        height=height,
    )


def spec(figure: Figure) -> Markup:
    """Return a chart as JSON that no text inside can break out of."""
    text = json.dumps(figure.spec, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Markup("".join(HTML.get(character, character) for character in text))


def height(figure: Figure) -> int:
    """Return the height a chart will need, so that the page hardly jumps when it is drawn."""
    return int(figure.spec.get("height", 250)) + 60


def swatch(name: str) -> Markup:
    """Draw a head for the legend: its colour, its marker and its dash."""
    look = look_of(name)
    dash = " ".join(map(str, dash_of(name.partition("+")[2] or "none")))
    return Markup(
        '<svg width="34" height="12" viewBox="-17 -6 34 12" aria-hidden="true">'
        '<path d="M-17,0H17" stroke="{}" stroke-width="2" stroke-dasharray="{}"/>'
        '<path d="{}" transform="scale(4.2)" fill="{}"/></svg>'
    ).format(look.colour, dash, look.marker, look.colour)


def squares(share: float) -> Markup:
    """Draw a share as so many of a hundred squares, row by row."""
    full = round(100 * share)
    drawn = (
        Markup('<rect x="{}" y="{}" width="8" height="8" class="{}"/>').format(
            10 * (n % 20), 10 * (n // 20), "full" if n < full else "rest"
        )
        for n in range(100)
    )
    return Markup(
        '<svg class="squares" viewBox="0 0 198 48" role="img" aria-label="{}">{}</svg>'
    ).format(f"{full} of 100", Markup("").join(drawn))


def _file(name: str) -> str:
    return files("lastlayer.report").joinpath(name).read_text(encoding="utf-8")
