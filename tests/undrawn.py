"""Reports whose charts are empty: for tests about everything but what charts look like."""

from collections.abc import Mapping

import pytest

from lastlayer.report import drawing
from lastlayer.report.drawing import Drawn


def leave_out_the_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing: the renderer is a process that starts slowly."""

    def draw(specs: Mapping[str, object]) -> Drawn:
        ends = {"svg": b"<svg/>", "pdf": b"%PDF"}
        return Drawn({f"{name}.{end}": text for name in specs for end, text in ends.items()})

    monkeypatch.setattr(drawing, "draw", draw)
    monkeypatch.setattr(drawing, "javascript", lambda: ("", ""))
