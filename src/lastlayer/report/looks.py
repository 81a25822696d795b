"""What a head looks like everywhere: colour and marker are its layer, the dash is its mask.

The paper's heads have the colours of Okabe and Ito, for every kind of colour vision; yellow is too
pale on white and became brown. Markers and dashes tell heads apart in black and white. A head whose
card names no colour or marker gets them by rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import cos, pi, sin

from lastlayer.catalogue import HEADS, MASKS, PAPER_HEADS
from lastlayer.report.colours import more_colours

ALL_LAYERS = "all layers"  # their average
GREY = "#777777"
DASHES: dict[str, list[int]] = {"none": [1, 0], "group": [7, 3], "single": [2, 2]}
SPARE = 24  # looks for heads of old results that have no card any more
FIRST = (  # of the paper's heads, what is seen at first where a chart holds many
    "linear",
    "linear+single",
    "weight_norm",
    "weight_norm+single",
    "cosine",
    "cosine+single",
    "knn",
    "mean",
    "slda",
)


@dataclass(frozen=True)
class Look:
    """The colour of a layer, and its marker as a path in the square from −1 to 1."""

    colour: str
    marker: str


def look_of(head: str) -> Look:
    """Return the look of a head, whatever its mask; one without a card has a look too.

    >>> look_of("slda+single").colour
    '#cc79a7'
    """
    layer = head.partition("+")[0]
    if layer == ALL_LAYERS:
        return Look(GREY, "")
    known, spare = _looks(tuple((c.name, c.colour, c.marker) for c in HEADS.values()))
    number = int.from_bytes(sha256(layer.encode()).digest()[:4])
    return known.get(layer) or spare[number % SPARE]


def layers_among(heads: Sequence[str]) -> list[str]:
    """Return the paper's layers, then those of ``heads``: a chart knows no others."""
    there = {name.partition("+")[0] for name in heads} - {ALL_LAYERS}
    known = [name for name, card in HEADS.items() if card.in_paper or name in there]
    return [*known, ALL_LAYERS, *sorted(there - {*HEADS})]


def masks() -> list[str]:
    """Return the masks in the order of the page."""
    return list(dict.fromkeys((*DASHES, *MASKS)))


def dash_of(mask: str) -> list[int]:
    """Return the dash of a mask."""
    return DASHES.get(mask, [9, 2, 2, 2])


def paper_layers(by_gradient: bool) -> list[str]:
    """Return the paper's heads without their masks: those trained by gradient, or the others.

    >>> paper_layers(by_gradient=False)
    ['knn', 'mean', 'median', 'slda']
    """
    layers = dict.fromkeys(name.partition("+")[0] for name in PAPER_HEADS)
    return [layer for layer in layers if HEADS[layer].by_gradient == by_gradient]


def place_of(name: str) -> tuple[int, int, str]:
    """Return the position of a head among all; unknown ones come last, by name.

    >>> sorted(["slda", "new", "cosine+single", "cosine", "gone"], key=place_of)
    ['cosine', 'cosine+single', 'slda', 'gone', 'new']
    """
    head, _, mask = name.partition("+")
    layers, known = list(HEADS), masks()
    place = layers.index(head) if head in HEADS else len(layers)
    return place, known.index(mask) if mask in known else 0, name


@cache
def _looks(
    cards: tuple[tuple[str, str | None, str | None], ...],
) -> tuple[dict[str, Look], list[Look]]:
    """Return the look of each card, and those that are left over.

    Args:
        cards: name, colour and marker; None where the rule gives it.
    """
    own = tuple(colour for _, colour, _ in cards if colour)
    without = sum(not (colour and marker) for _, colour, marker in cards)
    colours = iter(more_colours((*own, GREY), without + SPARE))
    markers = (_star(number) for number in range(without + SPARE))
    ruled = map(Look, colours, markers)
    looks = {}
    for name, colour, marker in cards:
        look = next(ruled) if not (colour and marker) else Look(colour, marker)
        looks[name] = Look(colour or look.colour, marker or look.marker)
    return looks, list(ruled)


def _star(number: int) -> str:
    """Draw polygons, stars and thorns in turn, with more and more points."""
    least, inner = ((5, 1.0), (4, 0.45), (3, 0.2))[number % 3]
    points = least + number // 3
    steps = range(points) if inner == 1 else range(2 * points)
    corners = []
    for step in steps:
        angle = 2 * pi * step / len(steps) - pi / 2
        radius = 1.1 if inner == 1 or step % 2 == 0 else 1.1 * inner
        corners.append(f"{radius * cos(angle):.2f},{radius * sin(angle):.2f}")
    return f"M{'L'.join(corners)}Z"
