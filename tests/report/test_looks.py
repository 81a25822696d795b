"""Layers can be told apart by everyone: in colour, with any colour vision, and without colour."""

from itertools import combinations

import numpy as np
import pytest

from lastlayer import catalogue
from lastlayer.catalogue.head_cards import HEADS, PAPER_HEADS
from lastlayer.report.looks import (
    ALL_LAYERS,
    FIRST,
    dash_of,
    look_of,
    masks,
    paper_layers,
    place_of,
)
from new_heads import NEW, with_cards

PAPER = [*paper_layers(by_gradient=True), *paper_layers(by_gradient=False)]
NINE = {  # as they were when the gallery was drawn
    "linear": ("#000000", "M-1,0A1,1,0,1,0,1,0A1,1,0,1,0,-1,0Z"),
    "linear_no_bias": ("#707070", "M-.85,-.85H.85V.85H-.85Z"),
    "weight_norm": ("#0072b2", "M0,-1L1,.8H-1Z"),
    "original_weight_norm": ("#56b4e9", "M0,1L1,-.8H-1Z"),
    "cosine": ("#d55e00", "M0,-1.1L1.1,0L0,1.1L-1.1,0Z"),
    "knn": ("#e69f00", "M1,0L-.8,1V-1Z"),
    "mean": ("#009e73", "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z"),
    "median": ("#6b3d0c", "M-1,0L.8,1V-1Z"),
    "slda": (
        "#cc79a7",
        "M0,-1.2L.35,-.42L1.2,-.37L.55,.18L.75,1L0,.54L-.75,1L-.55,.18L-1.2,-.37L-.35,-.42Z",
    ),
}

# Machado, Oliveira and Fernandes (2009): what is seen by people who lack one kind of cone.
VISION = {
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, vision: str) -> np.ndarray:
    """Give a colour as it is seen, in a space where distances are differences to the eye."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    x, y, z = np.cbrt(TO_XYZ @ seen / (TO_XYZ @ np.ones(3)) + 1e-9)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(colour: str) -> float:
    """Return the contrast to white, from 1 to 21 (WCAG 2, which asks 3 of graphics)."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(1.05 / (TO_XYZ[1] @ linear + 0.05))


def closest(colours: list[str], vision: str) -> float:
    seen = [lab(colour, vision) for colour in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))


@pytest.mark.parametrize("vision", VISION)
def test_colours_stay_apart(vision: str) -> None:
    assert closest([look_of(layer).colour for layer in PAPER], vision) > 9  # 2.3 is noticeable


@pytest.mark.parametrize("vision", VISION)
def test_colours_stand_out_from_the_page(vision: str) -> None:
    assert all(lab(look_of(layer).colour, vision)[0] < 75 for layer in PAPER)


def test_the_papers_heads_look_as_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cards(monkeypatch, *NEW)
    assert {name: (look_of(name).colour, look_of(name).marker) for name in PAPER} == NINE


def test_twelve_more_heads_can_be_told_apart_by_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cards(monkeypatch, *NEW)
    looks = [look_of(name) for name in (*PAPER, *[n for n in HEADS if n not in PAPER][:12])]
    assert len(looks) == 21
    assert all(contrast(look.colour) >= 3 for look in looks[9:])
    assert all(contrast(look.colour) > 2.2 for look in looks[:9])
    assert all(closest([look.colour for look in looks], vision) > 4 for vision in VISION)
    assert len({look.marker for look in looks}) == 21


def test_a_card_may_name_its_colour_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cards(monkeypatch, "ridge", colour="#123456")
    assert look_of("ridge").colour == "#123456"
    assert look_of("ridge").marker not in {marker for _, marker in NINE.values()}


def test_one_more_card_leaves_the_colours_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cards(monkeypatch, *NEW[:5])
    before = [look_of(name) for name in NEW[:5]]
    with_cards(monkeypatch, *NEW[:6])
    assert [look_of(name) for name in NEW[:5]] == before


def test_a_head_without_a_card_has_a_look_of_its_own() -> None:
    assert "gone" not in HEADS
    look = look_of("gone+single")
    assert look == look_of("gone")
    assert look.colour not in {colour for colour, _ in NINE.values()}
    assert look.marker


def test_markers_and_dashes_need_no_colour() -> None:
    assert len({look_of(layer).marker for layer in HEADS}) == len(HEADS)
    assert len({tuple(dash_of(mask)) for mask in masks()}) == len(masks())
    assert set(masks()) == set(catalogue.MASKS)
    assert look_of(ALL_LAYERS).marker == ""


def test_every_head_has_a_place() -> None:
    assert set(PAPER) == {name.partition("+")[0] for name in PAPER_HEADS}
    assert set(FIRST) <= set(PAPER_HEADS)
    assert len({place_of(name) for name in PAPER_HEADS}) == len(PAPER_HEADS)
