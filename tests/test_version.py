"""The version is written in one place; what cannot read it there is held to it."""

import re
import subprocess
import sys
from pathlib import Path

from lastlayer import __version__


def test_the_citation_names_this_version() -> None:
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.M) == [__version__]


def test_the_program_is_a_module_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lastlayer", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"lastlayer {__version__}\n"


def test_the_changelog_has_a_dated_section_of_this_version() -> None:
    changelog = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    (released,) = re.findall(r"^date-released: (.*)$", citation, re.M)
    assert f"## [{__version__}] - {released}\n" in changelog
