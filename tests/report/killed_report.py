"""Kills the making of a report at random moments, in processes of its own; run by its test."""

import sys
from collections.abc import Mapping
from pathlib import Path

from killing import KILLS, fork, kill
from lastlayer.report import drawing, write
from lastlayer.report.drawing import Drawn
from made_up import Stream, write_study


def drawn_at_once(specs: Mapping[str, object]) -> Drawn:
    ends = {"svg": b"<svg/>", "pdf": b"%PDF %%EOF"}
    return Drawn({f"{name}.{end}": text for name in specs for end, text in ends.items()})


def start(folder: Path) -> int:
    def do() -> None:
        study = folder / "study"  # the page says what its folder is called
        if not study.exists():
            write_study(folder / "new", [Stream(orders=(0,))])
            (folder / "new").rename(study)
        write(study)

    return fork(do)


if __name__ == "__main__":
    if KILLS < 100:  # the renderer is slow to start
        drawing.draw, drawing.javascript = drawn_at_once, lambda: ("", "")
    killed = kill(Path(sys.argv[1]), start, kills=KILLS // 5, after=(0, 1))
    print(killed)  # noqa: T201  (read by the test)
