"""An extraction killed at any moment goes on, and ends with the same file."""

import os
from pathlib import Path

import pytest
from tests.pictures import tree

import lastlayer as ll
from killing import KILLS, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork"),
]


def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    names = (f"{c}/{n}.png" for c in ("emu", "owl") for n in range(40))
    images = tree(tmp_path / "images", *names)
    script = Path(__file__).with_name("killed_extraction.py")
    assert int(run(script, tmp_path / "work", images)) == KILLS // 4
    expected = tmp_path / "work" / "undisturbed" / "features.safetensors"
    assert len(ll.load_features(expected).train) == 40
    disturbed = sorted((tmp_path / "work").glob("killed-*"))
    assert disturbed
    for folder in disturbed:
        assert os.listdir(folder) == [expected.name]
        assert (folder / expected.name).read_bytes() == expected.read_bytes()
