"""The version is written in one place; what cannot read it there is held to it."""

import re
from pathlib import Path

from lastlayer import __version__


def test_the_citation_names_this_version() -> None:
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.M) == [__version__]


def test_the_changelog_has_a_dated_section_of_this_version() -> None:
    changelog = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    (released,) = re.findall(r"^date-released: (.*)$", citation, re.M)
    assert f"## [{__version__}] - {released}\n" in changelog
