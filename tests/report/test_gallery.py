"""The charts of README and docs are those that `make gallery` makes from the committed results."""

import re
from pathlib import Path

import pytest
from benchmarks import beyond_figure

from lastlayer.report.contents import all_sheets, make_sections
from lastlayer.report.drawing import draw

ROOT = Path(__file__).parents[2]


def test_each_chart_is_made_by_the_command_and_shown() -> None:
    lists = re.compile(r"^(?:REPLAY_)?GALLERY = ((?:.*\\\n)*.*)$", re.MULTILINE)
    made = lists.findall((ROOT / "Makefile").read_text())
    assert len(made) == 2
    names = " ".join(made).replace("\\\n", " ").split()
    shown = re.findall(r"figures/([\w-]+)\.svg", (ROOT / "docs" / "gallery.md").read_text())
    kept = [path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")]
    assert sorted([*names, "beyond"]) == sorted(shown) == sorted(kept)
    assert "docs/figures/beyond.svg" in (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_committed_results_give_the_committed_figures_byte_for_byte() -> None:
    kept = {path.name: path.read_bytes() for path in (ROOT / "docs" / "figures").glob("*.svg")}
    found = {"beyond.svg": beyond_figure.svg().encode()}
    for folder in ("paper", "replay"):
        files = {s: ROOT / "results" / folder / "tables" / f"{s.name}.csv" for s in all_sheets()}
        read = {s.name: s.read(p.read_bytes(), p) for s, p in files.items() if p.is_file()}
        sections = make_sections({name: table for name, table in read.items() if table is not None})
        figures = (f for s in sections for panel in s.panels for f in panel.figures)
        found |= draw({f.name: f.spec for f in figures if f"{f.name}.svg" in kept}).files
    assert {name: found[name] for name in kept} == kept
