"""From a folder with results to its report: page, figures and tables."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lastlayer import __version__
from lastlayer.errors import LastLayerError, WriteError
from lastlayer.reading import a_folder
from lastlayer.report.drawing import Drawn, draw, javascript
from lastlayer.report.own_files import PAGE, one_at_a_time, replace_report
from lastlayer.report.page import Heading, make_page
from lastlayer.report.section import Section, Tables
from lastlayer.report.sheet import clean
from lastlayer.report.shown import latex, markdown
from lastlayer.report.topics import SHEETS, make_sections, make_tables
from lastlayer.report.topics.runs import known, notices, title
from lastlayer.report.topics.summary import answer
from lastlayer.results import load_study
from lastlayer.results.store import FILE


def write(folder: str | os.PathLike[str]) -> Path:
    """Write the report of a study beside its results, and return the path of the page.

    ``report.html``, ``figures/*.svg|pdf`` and ``tables/*.csv|md|tex``. Where there are no results
    but the tables of an earlier report, page and figures are made from those. A file that no report
    wrote is never replaced.

    Args:
        folder: where ``results.sqlite`` lies, or ``tables/*.csv``.
    """
    folder = a_folder(folder)
    alone = not (folder / FILE).is_file() and bool(_read_sheets(folder))
    if not alone:
        load_study(folder)  # says what is wrong before anything is written
    try:
        with one_at_a_time(folder), ThreadPoolExecutor(1) as pool:
            pool.submit(javascript)  # a process of its own makes it meanwhile; it is kept
            sheets = _read_sheets(folder) if alone else _make_sheets(folder)
            made = _make_report(folder, sheets, alone)
            if alone:
                replace_report(folder, made, kept=sheets)
            else:
                replace_report(folder, sheets | made)
    except OSError as error:
        if isinstance(error, LastLayerError):
            raise
        raise WriteError(f"cannot write the report into {folder}: {error}") from error
    return folder / PAGE


def _path(name: str) -> str:
    return f"tables/{name}.csv"


def _make_sheets(folder: Path) -> dict[str, bytes]:
    tables = make_tables(load_study(folder))
    return {_path(s.name): s.write(tables[s.name]) for s in SHEETS if s.name in tables}


def _read_sheets(folder: Path) -> dict[str, bytes]:
    paths = (_path(sheet.name) for sheet in SHEETS)
    return {path: (folder / path).read_bytes() for path in paths if (folder / path).is_file()}


def _make_report(folder: Path, sheets: dict[str, bytes], alone: bool) -> dict[str, bytes]:
    """Return the content of every file that is made from the sheets.

    Args:
        folder: of the report.
        sheets: the content of their files, by path.
        alone: whether there is nothing but these files, which may hold anything.
    """
    tables, said = {}, []
    for sheet in SHEETS:
        path = _path(sheet.name)
        table = sheet.read(sheets[path], folder / path) if path in sheets else None
        if table is not None:
            tables[sheet.name] = table
        elif path in sheets:
            said.append(f"{path} has other columns than this version of lastlayer knows: what is "
                        "made from it is left out.")  # fmt: skip
    sections = make_sections(tables, folder / "tables" if alone else None)
    figures = [f for section in sections for panel in section.panels for f in panel.figures]
    drawn = draw({figure.name: figure.spec for figure in figures})
    files = {f"figures/{name}": content for name, content in drawn.files.items()}
    for shown in (table for section in sections for table in section.tables):
        files[f"tables/{shown.name}.md"] = markdown(shown).encode()
        files[f"tables/{shown.name}.tex"] = latex(shown).encode()
    page = _page(tables, sections, said, drawn)
    return files | {PAGE: page.encode()}


def _page(tables: Tables, sections: Sequence[Section], said: Sequence[str], drawn: Drawn) -> str:
    bundle, why = javascript()
    notes = [*notices(tables, __version__), *said, *_not_drawn(drawn)]
    if why and any(section.panels for section in sections):
        notes.append(f"The charts are missing on this page: {why}. All tables are there.")
    plan = known(tables).get("plan", "")
    heading = Heading(title(tables), answer(tables), __version__)
    return make_page(heading, sections, notes, plan, bundle)


def _not_drawn(drawn: Drawn) -> list[str]:
    """Say which figures there are no files of, by reason."""
    reasons = dict.fromkeys(drawn.missing.values())
    return [
        "These charts could not be written to figures/: "
        f"{', '.join(name for name, why in drawn.missing.items() if why == reason)} "
        f"({clean(reason)})."
        for reason in reasons
    ]
