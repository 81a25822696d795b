"""Layers can be told apart by everyone: in colour, with any colour vision, and without colour."""

from itertools import combinations

import numpy as np
import pytest

from lastlayer.catalogue import HEADS, PAPER_HEADS
from lastlayer.layers import LAYERS as GRADIENT_LAYERS
from lastlayer.layers import MASKS as ALL_MASKS
from lastlayer.report.looks import FIRST, GRADIENT, LAYERS, MASKS, SIMILARITY, place_of

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


@pytest.mark.parametrize("vision", VISION)
def test_colours_stay_apart(vision: str) -> None:
    seen = {layer: lab(colour, vision) for layer, (colour, _) in LAYERS.items()}
    gaps = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(seen, 2)}
    assert min(gaps.values()) > 9, min(gaps, key=gaps.__getitem__)  # 2.3 is just noticeable


@pytest.mark.parametrize("vision", VISION)
def test_colours_stand_out_from_the_page(vision: str) -> None:
    assert all(lab(colour, vision)[0] < 75 for colour, _ in LAYERS.values())


def test_markers_and_dashes_need_no_colour() -> None:
    assert len({marker for _, marker in LAYERS.values()}) == len(LAYERS)
    assert len({tuple(dash) for dash in MASKS.values()}) == len(MASKS)


def test_every_head_has_a_look() -> None:
    assert set(LAYERS) == set(HEADS)
    assert set(GRADIENT) == set(GRADIENT_LAYERS)
    assert set(GRADIENT) | set(SIMILARITY) == set(HEADS)
    assert set(MASKS) == set(ALL_MASKS)
    assert set(FIRST) <= set(PAPER_HEADS)
    assert len({place_of(name) for name in PAPER_HEADS}) == len(PAPER_HEADS)
