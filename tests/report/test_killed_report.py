"""A report killed at any moment is made whole by the next one, from the same results."""

import os
from pathlib import Path

import pytest

from killing import KILLS, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork"),
]


def content(folder: Path) -> dict[str, bytes]:
    """Give every file that is to be seen; one that a kill left unfinished has a dot before it."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): seen(path)
        for path in paths
        if not path.name.startswith(".") and path.suffix != ".sqlite"
    }


def seen(path: Path) -> bytes:
    """Give a file's content; of a PDF its length and ends, since parts of it change their order.

    The renderer writes them as its hash tables have them, two reports of one study differ by that.
    """
    content = path.read_bytes()
    if path.suffix != ".pdf":
        return content
    assert content.startswith(b"%PDF")
    assert content.endswith(b"%%EOF")
    return b"%d bytes" % len(content)


def test_killed_again_and_again_it_ends_with_the_same_files(tmp_path: Path) -> None:
    assert int(run(Path(__file__).with_name("killed_report.py"), tmp_path)) == KILLS // 5
    expected = content(tmp_path / "undisturbed" / "study")
    assert {"report.html", "tables/accuracy.csv"} <= expected.keys()
    assert any(name.startswith("figures/") for name in expected)
    disturbed = sorted(tmp_path.glob("killed-*"))
    assert disturbed
    for folder in disturbed:
        assert content(folder / "study") == expected
