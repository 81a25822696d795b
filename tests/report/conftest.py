"""A report with every section, made once for all tests that read it; and reports without charts."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from made_up import PAPER, write_study

from lastlayer.report import write, writing
from lastlayer.report.drawing import Drawn


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the paper's report; in the quick run nobody looks at its figures, so they are none."""
    folder = write_study(tmp_path_factory.mktemp("paper"), PAPER)
    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr == "not slow":
            leave_out_the_renderer(patch)
        write(folder)
    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the renderer out: for tests about everything but what charts look like."""
    leave_out_the_renderer(monkeypatch)


def leave_out_the_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(specs: Mapping[str, object]) -> Drawn:
        ends = {"svg": b"<svg/>", "pdf": b"%PDF"}
        return Drawn({f"{name}.{end}": text for name in specs for end, text in ends.items()})

    monkeypatch.setattr(writing, "draw", draw)
    monkeypatch.setattr(writing, "javascript", lambda: ("", ""))
