"""What a head looks like everywhere: colour and marker are its layer, the dash is its mask.

The paper's heads have the colours of Okabe and Ito, for every kind of colour vision; yellow is too
pale on white and became brown. Markers and dashes tell heads apart in black and white. Cards name
colours and markers; a head whose card names none, or that has no card, gets spare ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import cos, pi, sin

import altair as alt
import polars as pl

from lastlayer.catalogue.head_cards import HEADS, MASKS, PAPER_HEADS, base_name

ALL_LAYERS = "all layers"  # their average
GREY = "#777777"
# Each as far as possible from those of the cards and from one another, for every kind of vision.
SPARE = ("#cc00aa", "#cc0044", "#556600", "#554488", "#6644cc", "#005566",
         "#ee33ee", "#885588", "#888844", "#7788cc", "#ee6666", "#772244")  # fmt: skip
DASHES: dict[str, list[int]] = {"none": [1, 0], "group": [7, 3], "single": [2, 2]}
MANY = 10  # heads; more are not all drawn at first
FIRST = (  # of the paper's heads, what is seen at first where a chart holds many
    "linear", "linear+single", "weight_norm", "weight_norm+single", "cosine", "cosine+single",
    "knn", "mean", "slda",
)  # fmt: skip


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
    layer = base_name(head)
    if layer == ALL_LAYERS:
        return Look(GREY, "")
    card = HEADS.get(layer)
    if card is None:
        number = int.from_bytes(sha256(layer.encode()).digest()[:4]) % len(SPARE)
        return Look(SPARE[number], _star(number))
    number = [c.name for c in HEADS.values() if c is card or not (c.colour and c.marker)].index(
        layer
    )
    return Look(card.colour or SPARE[number % len(SPARE)], card.marker or _star(number))


def _star(number: int) -> str:
    """Draw a star; no two numbers have the same number of points."""
    steps = 2 * (6 + number)
    corners = []
    for step in range(steps):
        angle, radius = 2 * pi * step / steps - pi / 2, 0.5 if step % 2 else 1.1
        corners.append(f"{radius * cos(angle):.2f},{radius * sin(angle):.2f}")
    return f"M{'L'.join(corners)}Z"


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
    base = base_name(head)
    place = layers.index(base) if base in HEADS else len(layers)
    return place, known.index(mask) if mask in known else 0, name


def heads_of(table: pl.DataFrame) -> list[str]:
    """Return the heads of a table in the order of all legends."""
    return sorted(table["name"].unique(), key=place_of)


def hidden_of(heads: Sequence[str]) -> list[str]:
    """Return the heads that are switched off at first; none if there are few."""
    few = len(heads) <= MANY or not any(name in FIRST for name in heads)
    # Any head that is not the paper's is there because somebody asked for it.
    hidden = {*PAPER_HEADS} - {*FIRST}
    return [] if few else [name for name in heads if name in hidden]


def layer_scale(heads: Sequence[str]) -> alt.Scale:
    """Return the colour of each layer of a chart, and of all the paper's."""
    layers = layers_among(heads)
    return alt.Scale(domain=layers, range=[look_of(layer).colour for layer in layers])


def marker_scale(heads: Sequence[str]) -> alt.Scale:
    """Return the marker of each layer of a chart, and of all the paper's."""
    layers = layers_among(heads)
    return alt.Scale(domain=layers, range=[look_of(layer).marker for layer in layers])


def mask_scale() -> alt.Scale:
    """Return the dash of each mask."""
    return alt.Scale(domain=masks(), range=[dash_of(mask) for mask in masks()])


@dataclass(frozen=True)
class Encoding:
    """How a chart encodes its heads; the legends, for use outside the page, name what is drawn."""

    colour: alt.Color
    shape: alt.Shape
    dash: alt.StrokeDash


def encode_heads(heads: Sequence[str], hidden: Sequence[str] = ()) -> Encoding:
    """Encode layers by colour and marker, masks by dash, in the columns head and mask."""
    drawn = [name.partition("+") for name in heads if name not in hidden]
    layers = list(dict.fromkeys(layer for layer, _, _ in drawn))
    some = [mask for mask in masks() if mask in {mask or "none" for _, _, mask in drawn}]
    names = alt.Legend(title="layer", values=layers, symbolOpacity=1)
    dashes = alt.Legend(title="mask", values=some, symbolSize=900) if len(some) > 1 else None
    return Encoding(
        alt.Color("head:N", scale=layer_scale(heads), legend=names),
        alt.Shape("head:N", scale=marker_scale(heads), legend=names),
        alt.StrokeDash("mask:N", scale=mask_scale(), legend=dashes),
    )
