"""From a folder with results to its report: page, figures and tables."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from markupsafe import Markup

from lastlayer.core.files import a_folder
from lastlayer.core.version import __version__
from lastlayer.errors import LastLayerError, WriteError
from lastlayer.report import drawing
from lastlayer.report.contents import all_sheets, make_sections, make_tables
from lastlayer.report.drawing import Drawn
from lastlayer.report.own_files import PAGE, one_at_a_time, replace_report
from lastlayer.report.page import Page, make_page
from lastlayer.report.section import Section, Tables
from lastlayer.report.sheet import clean
from lastlayer.report.table import latex, markdown
from lastlayer.report.topics.runs import known, notices, title
from lastlayer.report.topics.summary import answer, how_to_choose
from lastlayer.results import Study, load_study
from lastlayer.results.store import FILE

ABOUT = (
    "Accuracies are in percent of test samples; ± is the deviation over orders or seeds, and where "
    "there is none it is below 0.005. Colour and marker are the layer, the dash is the mask, "
    "everywhere."
)
CHOSEN_ON_TEST_ROWS = Markup(
    "{} These rows made the choice, which flatters it a little: to choose a head for use, run "
    "<code>{}</code>, which judges on rows held out of the training data."
)
FOOTER = Markup(
    "Heads and measures follow <cite>Continual Learning in Deep Neural Networks: an Analysis of "
    "the Last Layer</cite>. Charts lie beside this page as SVG and PDF in figures/, tables as CSV, "
    "Markdown and LaTeX in tables/."
)


def write(folder: str | os.PathLike[str], study: Study | None = None) -> Path:
    """Write the report of a study beside its results, and return the path of the page.

    ``report.html``, ``figures/*.svg|pdf`` and ``tables/*.csv|md|tex``. Where there are no results
    but the tables of an earlier report, page and figures are made from those. A file that no report
    wrote is never replaced. ``study``: the results in the folder, if they are loaded already.
    """
    folder = a_folder(folder)
    if study is None and ((folder / FILE).is_file() or not _read_sheets(folder)):
        # Before anything is written: it says what is wrong with the results.
        study = load_study(folder)
    try:
        with one_at_a_time(folder), ThreadPoolExecutor(1) as pool:
            # A process of its own makes the JavaScript meanwhile, and it is kept.
            pool.submit(drawing.javascript)
            sheets = _read_sheets(folder) if study is None else _make_sheets(study)
            made = _make_report(folder, sheets, alone=study is None)
            if study is None:
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


def _make_sheets(study: Study) -> dict[str, bytes]:
    tables = make_tables(study)
    return {_path(s.name): s.write(tables[s.name]) for s in all_sheets() if s.name in tables}


def _read_sheets(folder: Path) -> dict[str, bytes]:
    paths = (_path(sheet.name) for sheet in all_sheets())
    return {path: (folder / path).read_bytes() for path in paths if (folder / path).is_file()}


def _make_report(folder: Path, sheets: dict[str, bytes], alone: bool) -> dict[str, bytes]:
    """Return the content of every file that is made from the sheets, which are given by path.

    ``alone``: there is nothing but their files, which may hold anything.
    """
    tables, said = {}, []
    for sheet in all_sheets():
        path = _path(sheet.name)
        table = sheet.read(sheets[path], folder / path) if path in sheets else None
        if table is not None:
            tables[sheet.name] = table
        elif path in sheets:
            said.append(f"{path} has other columns than this version of lastlayer knows: what is "
                        "made from it is left out.")  # fmt: skip
    sections = make_sections(tables, folder / "tables" if alone else None)
    figures = [f for section in sections for panel in section.panels for f in panel.figures]
    drawn = drawing.draw({figure.name: figure.spec for figure in figures})
    files = {f"figures/{name}": content for name, content in drawn.files.items()}
    for shown in (table for section in sections for table in section.tables):
        files[f"tables/{shown.name}.md"] = markdown(shown).encode()
        files[f"tables/{shown.name}.tex"] = latex(shown).encode()
    page = _page(tables, sections, said, drawn)
    return files | {PAGE: page.encode()}


def _page(tables: Tables, sections: Sequence[Section], left: Sequence[str], drawn: Drawn) -> str:
    notes = [*notices(tables, __version__), *left, *_not_drawn(drawn)]
    plan = known(tables).get("plan")
    if plan:
        sections = [*sections, Section("plan", "The plan", code=plan, part=sections[-1].part)]
    said = answer(tables)
    if "test rows" in said:
        said = CHOSEN_ON_TEST_ROWS.format(said, how_to_choose(tables))
    return make_page(Page(title(tables), said, ABOUT, sections, notes, FOOTER))


def _not_drawn(drawn: Drawn) -> list[str]:
    """Say which figures there are no files of, by reason."""
    reasons = dict.fromkeys(drawn.missing.values())
    return [
        "These charts could not be written to figures/: "
        f"{', '.join(name for name, why in drawn.missing.items() if why == reason)} "
        f"({clean(reason)})."
        for reason in reasons
    ]
