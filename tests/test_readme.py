"""The README keeps its promises: short, and every Python block in it runs."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_it_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 100


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks run in turn, as a reader would type them, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(README.read_text(encoding="utf-8"))
    assert blocks, "expected at least one block of Python in README.md, got none"
    names: dict[str, object] = {"__name__": "__readme__"}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"README.md, block {number}", "exec"), names)


def test_its_make_targets_exist() -> None:
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^make (\w+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"study", "test"} <= set(named)
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
