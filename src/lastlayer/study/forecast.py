"""Roughly how long a study will take."""

from pathlib import Path

from lastlayer.errors import MissingFileError
from lastlayer.results import load_study
from lastlayer.study.heads.execute import choose_device
from lastlayer.study.kinds import WORKSHOPS
from lastlayer.study.prepare import Prepared
from lastlayer.study.run import Forecast


def forecast(ready: Prepared, folder: Path, device: str = "auto") -> list[Forecast]:
    """Return what there is to run, how much of it the folder lacks, and seconds."""
    kept, chosen = _kept(folder), choose_device(device)
    return [
        row
        for kind, workshop in WORKSHOPS.items()
        for row in workshop.forecast(ready.of(kind), ready.data, kept, chosen)
    ]


def _kept(folder: Path) -> set[str]:
    try:
        study = load_study(folder)
    except MissingFileError:
        return set()
    return {*study.done["digest"], *study.replay.filter(state="done")["digest"]}
