"""The charts of README and docs are those that `make gallery` makes from the committed results."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_chart_is_made_by_the_command_and_shown() -> None:
    made = re.search(r"^GALLERY = ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert made is not None
    names = made[1].replace("\\\n", " ").split()
    shown = re.findall(r"figures/([\w-]+)\.svg", (ROOT / "docs" / "gallery.md").read_text())
    kept = [path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")]
    assert sorted(names) == sorted(shown) == sorted(kept)
    assert "docs/figures/summary.svg" in (ROOT / "README.md").read_text()
