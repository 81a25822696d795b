"""From a folder with results to its report: page, figures and tables."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import altair as alt
import vl_convert

from lastlayer import __version__
from lastlayer.atomic import in_place_of
from lastlayer.errors import WriteError
from lastlayer.report.folder import read_tables, save_tables
from lastlayer.report.page import make_page
from lastlayer.report.section import Figure, Section, Tables
from lastlayer.report.sections import make_sections
from lastlayer.report.sections.runs import known, notices
from lastlayer.report.shown import Table, latex, markdown
from lastlayer.report.tables import NAMES, OF_REPLAY, make_tables
from lastlayer.results import load_study
from lastlayer.results.store import FILE

PAGE = "report.html"
ROOM = {"left": 27, "right": 15, "top": 5, "bottom": 5}  # a reader's font may be wider than ours


def write(folder: str | os.PathLike[str]) -> Path:
    """Write the report of a study beside its results, and give the path of the page.

    ``report.html``, ``figures/*.svg|pdf`` and ``tables/*.csv|md|tex``. Where there are no results
    but the tables of an earlier report, page and figures are made from those.

    Args:
        folder: where ``results.sqlite`` lies, or ``tables/*.csv``.
    """
    folder = Path(folder)
    alone = (folder / "tables" / "about.csv").is_file() and not (folder / FILE).is_file()
    fresh = None if alone else make_tables(load_study(folder))
    try:
        if fresh:
            save_tables(fresh, folder / "tables")
        tables = read_tables(folder / "tables", NAMES, OF_REPLAY)
        sections = make_sections(tables)
        _write_tables((t for section in sections for t in section.tables), folder / "tables")
        _write_page(sections, tables, folder)
        panels = [panel for section in sections for panel in section.panels]
        _write_figures((f for panel in panels for f in panel.figures), folder / "figures")
    except OSError as error:
        raise WriteError(f"cannot write the report into {folder}: {error}") from error
    return folder / PAGE


def _write_page(sections: Sequence[Section], tables: Tables, folder: Path) -> None:
    plan = known(tables).get("plan", "")
    title = f"Which output layer forgets least: {folder.resolve().name}"
    page = make_page(title, __version__, sections, notices(tables, __version__), plan)
    with in_place_of(folder / PAGE) as unfinished:
        unfinished.write_text(page, encoding="utf-8")


def _write_tables(tables: Iterable[Table], folder: Path) -> None:
    _clear(folder, ".md", ".tex")
    for table in tables:
        (folder / f"{table.name}.md").write_text(markdown(table), encoding="utf-8")
        (folder / f"{table.name}.tex").write_text(latex(table), encoding="utf-8")


def _write_figures(figures: Iterable[Figure], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    _clear(folder, ".svg", ".pdf")
    for figure in figures:
        spec = {**figure.spec, "padding": ROOM}
        svg = vl_convert.vegalite_to_svg(spec, vl_version=_VEGA_LITE)
        (folder / f"{figure.name}.svg").write_text(svg, encoding="utf-8")
        (folder / f"{figure.name}.pdf").write_bytes(vl_convert.svg_to_pdf(svg))


_VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def _clear(folder: Path, *suffixes: str) -> None:
    """Remove what an earlier report left, which may have had other parts."""
    for path in folder.iterdir():
        if path.suffix in suffixes:
            path.unlink()
