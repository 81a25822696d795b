"""Colours by rule: each as far as possible from those before it, and dark enough on white.

Distances are those of OKLab (Ottosson, 2020), as people see who have all kinds of cones and as
those see who lack one (Machado, Oliveira and Fernandes, 2009).
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONTRAST = 3.0  # to white, at least: what WCAG 2 asks of graphics
LIGHTNESS = 0.38  # at least: thin lines that are darker all look black
STEP = 17  # of the candidates in red, green and blue: 16 values each

_LMS = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip
_LAB = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
# A colour that only people with all cones can tell apart from another counts by half.
_VISIONS: Sequence[tuple[float, Sequence[Sequence[float]]]] = (
    (0.5, ((1, 0, 0), (0, 1, 0), (0, 0, 1))),
    (1.0, ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
           (-0.003882, -0.048116, 1.051998))),
    (1.0, ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
           (-0.011820, 0.042940, 0.968881))),
    (1.0, ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
           (0.004733, 0.691367, 0.303900))),
)  # fmt: skip


def oklab(colour: str) -> Floats:
    """Return a colour's lightness and its two opponent axes.

    >>> oklab("#ffffff").round(3).tolist()
    [1.0, 0.0, 0.0]
    """
    return _oklab(_linear(_levels(colour)))


def contrast(colour: str) -> float:
    """Return the contrast of a colour to white, from 1 to 21 (WCAG 2).

    >>> round(contrast("#000000"), 3)
    21.0
    """
    return float(_contrast(_linear(_levels(colour))))


@cache
def more_colours(taken: tuple[str, ...], n: int) -> tuple[str, ...]:
    """Choose n colours, each farthest from those that are taken and chosen before it.

    Args:
        taken: colours as "#rrggbb".
        n: how many more.
    """
    levels = np.stack(np.meshgrid(*[np.arange(0, 256, STEP)] * 3, indexing="ij"), -1).reshape(-1, 3)
    linear = _linear(levels)
    levels = levels[(_contrast(linear) >= CONTRAST) & (_oklab(linear)[:, 0] >= LIGHTNESS)]
    seen = _seen(levels)
    gaps = np.full(len(levels), np.inf)
    for colour in taken:
        gaps = np.minimum(gaps, _gap(seen, _seen(_levels(colour))))
    chosen = []
    for _ in range(n):
        best = int(gaps.argmax())
        chosen.append("#" + "".join(f"{level:02x}" for level in levels[best]))
        gaps = np.minimum(gaps, _gap(seen, seen[:, best]))
    return tuple(chosen)


def _levels(colour: str) -> NDArray[np.int64]:
    return np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])


def _linear(levels: NDArray[np.int64]) -> Floats:
    shares = levels / 255
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def _oklab(linear: Floats) -> Floats:
    return np.asarray(np.cbrt(linear @ _LMS.T) @ _LAB.T, dtype=np.float64)


def _contrast(linear: Floats) -> Floats:
    return np.asarray(1.05 / (linear @ _LUMINANCE + 0.05), dtype=np.float64)


def _seen(levels: NDArray[np.int64]) -> Floats:
    """Return colours as each kind of vision sees them, weighted: (4, …, 3)."""
    linear = _linear(levels)
    views = [w * _oklab(np.clip(linear @ np.array(m).T, 0, 1)) for w, m in _VISIONS]
    return np.stack(views)


def _gap(seen: Floats, one: Floats) -> Floats:
    """Return the distance of each colour to one, in the eyes that tell them apart least."""
    distances = np.linalg.norm(seen - one.reshape(4, 1, 3), axis=-1)
    return np.asarray(distances.min(axis=0), dtype=np.float64)
