"""Charts as SVG and PDF, drawn by a process of its own: if it dies, nothing else does.

The renderer holds a JavaScript engine. It ends the whole process where memory is limited, and where
a chart holds what it cannot draw.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt

PROGRAM = Path(__file__).with_name("draw_charts.py")
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
ROOM = {"left": 27, "right": 15, "top": 5, "bottom": 5}  # a reader's font may be wider than ours
PATIENCE = 60.0  # seconds for a chart, and to begin
BUNDLE = "bundle.js"
MOST = 4  # processes that draw at once; each takes some 200 MB
ENOUGH = 8  # charts that another process is worth starting for


@dataclass(frozen=True)
class Drawn:
    """The drawn charts of a page, and those that could not be drawn."""

    files: Mapping[str, bytes] = field(default_factory=dict)  # NAME.svg and NAME.pdf
    missing: Mapping[str, str] = field(default_factory=dict)  # name → why it was not drawn


def draw(specs: Mapping[str, Mapping[str, Any]]) -> Drawn:
    """Draw charts of Vega-Lite, by the names of their files; those that cannot be are left out.

    Many are drawn by several processes at once. A chart is the same whatever is drawn beside it.
    """
    jobs = [
        {"name": name, "spec": {**spec, "padding": _padding(spec)}} for name, spec in specs.items()
    ]
    n = max(1, min(os.cpu_count() or 1, MOST, len(jobs) // ENOUGH))
    with ThreadPoolExecutor(n) as pool:
        parts = list(pool.map(_draw, [jobs[first::n] for first in range(n)]))
    files = {name: content for part in parts for name, content in part.files.items()}
    missing = {name: reason for part in parts for name, reason in part.missing.items()}
    return Drawn(files, {name: missing[name] for name in specs if name in missing})


def _draw(jobs: list[dict[str, Any]]) -> Drawn:
    """Draw in one process, and in another where that has died."""
    files: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    deaths = 0
    while jobs:
        made, reasons, ended = _run(jobs)
        files |= made
        missing |= reasons
        done = {name.rpartition(".")[0] for name in made} | reasons.keys()
        jobs = [job for job in jobs if job["name"] not in done]
        if not jobs or not ended:
            break
        deaths = 0 if done else deaths + 1
        if deaths > 1:  # it dies whatever it is to draw
            missing |= {str(job["name"]): ended for job in jobs}
            break
        missing[str(jobs.pop(0)["name"])] = ended  # the one it was at
    return Drawn(files, missing)


def _padding(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the room around a chart: as much as a file needs, and as the chart asks for."""
    asked = spec.get("padding", {})
    return {side: max(room, asked.get(side, 0)) for side, room in ROOM.items()}


def javascript() -> tuple[str, str]:
    """Return Vega, Vega-Lite and Vega-Embed in one piece, or the reason why not."""
    try:
        return _javascript(), ""
    except OSError as error:
        return "", str(error)


@cache
def _javascript() -> str:
    made, reasons, ended = _run([{"name": BUNDLE}])
    if BUNDLE not in made:
        raise OSError(reasons.get(BUNDLE, ended))
    return made[BUNDLE].decode()


def _run(jobs: Sequence[Mapping[str, Any]]) -> tuple[dict[str, bytes], dict[str, str], str]:
    """Draw in one process; return what it drew, what it could not, and how it failed, if it did."""
    with tempfile.TemporaryDirectory(prefix="lastlayer-") as folder:
        ended = ""
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(PROGRAM), folder, VEGA_LITE],
                input="".join(f"{json.dumps(job)}\n" for job in jobs).encode(),
                capture_output=True,
                timeout=PATIENCE * (1 + len(jobs)),
                check=False,
            )
            if done.returncode:
                ended = _how(done.returncode, done.stderr)
        except subprocess.TimeoutExpired:
            ended = "the chart renderer did not come to an end"
        except OSError as error:
            ended = f"the chart renderer could not be started: {error}"
        numbered = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    made, reasons = {}, {}
    for number, job in enumerate(jobs):
        name = str(job["name"])
        if f"{number}.error" in numbered:
            reasons[name] = numbered[f"{number}.error"].decode()
        elif name == BUNDLE and f"{number}.js" in numbered:
            made[name] = numbered[f"{number}.js"]
        elif f"{number}.pdf" in numbered:  # the last that is written of a chart
            made |= {f"{name}.{end}": numbered[f"{number}.{end}"] for end in ("svg", "pdf")}
    return made, reasons, ended


def _how(code: int, said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    fatal = next((line for line in lines if "memory" in line.lower()), lines[0] if lines else "")
    how = f"signal {-code}" if code < 0 else f"status {code}"
    return f"the chart renderer ended by {how}" + (f": {fatal[:200]}" if fatal else "")
