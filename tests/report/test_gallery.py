"""The charts of README and docs are those that `make gallery` makes from the committed results."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_chart_is_made_by_the_command_and_shown() -> None:
    lists = re.compile(r"^(?:REPLAY_)?GALLERY = ((?:.*\\\n)*.*)$", re.MULTILINE)
    made = lists.findall((ROOT / "Makefile").read_text())
    assert len(made) == 2
    names = " ".join(made).replace("\\\n", " ").split()
    shown = re.findall(r"figures/([\w-]+)\.svg", (ROOT / "docs" / "gallery.md").read_text())
    kept = [path.stem for path in (ROOT / "docs" / "figures").glob("*.svg")]
    assert sorted(names) == sorted(shown) == sorted(kept)
    assert "docs/figures/summary.svg" in (ROOT / "README.md").read_text()
