"""A program of its own that draws the charts it is given, one on each line of its input.

It imports nothing of lastlayer, so that it starts at once. A file appears under its name only when
it is whole.
"""

import json
import re
import sys
from pathlib import Path

import vl_convert


def main(folder: Path, vega_lite: str) -> None:
    """Write each chart to NUMBER.svg and NUMBER.pdf, or the reason to NUMBER.error."""
    for number, line in enumerate(sys.stdin.buffer):
        job = json.loads(line)
        try:
            if "spec" not in job:
                text = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed")
                _keep(folder / f"{number}.js", str(text).encode())
                continue
            svg = _numbered_anew(vl_convert.vegalite_to_svg(job["spec"], vl_version=vega_lite))
            pdf = vl_convert.svg_to_pdf(svg)
            _keep(folder / f"{number}.svg", svg.encode())
            _keep(folder / f"{number}.pdf", pdf)
        except Exception as error:
            said = str(error).strip().partition("\n")[0][:200]
            _keep(folder / f"{number}.error", f"{type(error).__name__}: {said}".encode())


def _numbered_anew(svg: str) -> str:
    """Number the colour ramps of a chart from 0: the renderer counts on from chart to chart."""
    found = dict.fromkeys(re.findall(r'id="gradient_(\d+)"', svg))
    places = {number: place for place, number in enumerate(found)}
    return re.sub(
        r"\bgradient_(\d+)\b", lambda ramp: f"gradient_{places.get(ramp[1], ramp[1])}", svg
    )


def _keep(path: Path, content: bytes) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
