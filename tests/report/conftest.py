"""A report with every section, made once for all tests that read it; and reports without charts."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from made_up import PAPER, write_study

from lastlayer.report import write, writing
from lastlayer.report.drawing import Drawn


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_study(tmp_path_factory.mktemp("paper"), PAPER)
    write(folder)
    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the renderer out: for tests about everything but what charts look like."""

    def draw(specs: Mapping[str, object]) -> Drawn:
        ends = {"svg": b"<svg/>", "pdf": b"%PDF"}
        return Drawn({f"{name}.{end}": text for name in specs for end, text in ends.items()})

    monkeypatch.setattr(writing, "draw", draw)
    monkeypatch.setattr(writing, "javascript", lambda: ("", ""))
