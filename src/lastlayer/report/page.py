"""One self-contained page: it works offline, and asks nothing of any other machine."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment
from markupsafe import Markup

from lastlayer.report.looks import dash_of, look_of
from lastlayer.report.section import Figure, Section

HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class Heading(NamedTuple):
    """What a page begins with."""

    title: str
    answer: str  # what to use, in a sentence; "" where the study cannot tell
    version: str  # of lastlayer, which makes the page


def make_page(
    heading: Heading,
    sections: Sequence[Section],
    notices: Sequence[str],
    plan: str,
    bundle: str,
) -> str:
    """Write the page.

    Args:
        heading: its title, and what a reader came for.
        sections: its parts.
        notices: what a reader must know before anything else.
        plan: the text of the plan that was run.
        bundle: the JavaScript that draws charts; "" where it cannot be had.
    """
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        _file("page.html.jinja")
    )
    return template.render(
        **heading._asdict(),
        sections=sections,
        notices=notices,
        plan=plan,
        css=Markup(_file("page.css")),
        script=Markup(_file("page.js")),
        bundle=Markup(bundle.replace("</script", "<\\/script")),  # no text in it ends the script
        swatch=swatch,
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


def _file(name: str) -> str:
    return files("lastlayer.report").joinpath(name).read_text(encoding="utf-8")
