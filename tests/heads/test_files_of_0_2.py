"""Heads that version 0.2 wrote, and what its program answered: they load, and answer the same."""

import json
from pathlib import Path

import pytest
import torch

from lastlayer import HeadClassifier, load_head
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import CalibrationWarning

FILES = Path(__file__).parent / "of_0_2"
ANSWERS = json.loads((FILES / "answers.json").read_text())
QUERIES = torch.tensor(ANSWERS.pop("queries"))


@pytest.mark.parametrize("name", ANSWERS)
def test_they_answer_as_they_did(name: str) -> None:
    path = FILES / f"{name}.safetensors"
    assert read_tensors(path, "head")[1]["format"] == 2
    if name == "classifier":
        clf = HeadClassifier.load(path)
        assert clf.classes_.tolist() == ["cat", "dog", "owl"]
        with pytest.warns(CalibrationWarning):  # its limits are of another novelty
            found = torch.from_numpy(clf.predict_proba(QUERIES.numpy()))
    else:
        head = load_head(path)
        assert head.class_names == ["cat", "dog", "owl"]
        found = head(QUERIES)
    expected = torch.tensor(ANSWERS[name], dtype=found.dtype)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - {"classifier"}))
def test_they_learn_on_as_a_copy_from_a_file_of_this_version(name: str, tmp_path: Path) -> None:
    old = load_head(FILES / f"{name}.safetensors")
    old.save(tmp_path / "new")
    new = load_head(tmp_path / "new")
    for head in (old, new):
        head.observe(QUERIES, torch.tensor([3, 0, 3]))
    assert torch.equal(old(QUERIES), new(QUERIES))
    assert new.settings == old.settings


@pytest.mark.parametrize(("name", "stale"), [("slda", True), ("mean", False)])
def test_limits_of_a_novelty_that_is_measured_otherwise_are_out_of_date(
    name: str, stale: bool, tmp_path: Path
) -> None:
    state, document = read_tensors(FILES / f"{name}.safetensors", "head")
    limits = {"temperature": 2.0, "rows": 30, "ranks": [1, 2], "novelty": [3.0, 2.0]}
    document["calibration"] = {**limits, "stale": False}
    write_tensors(tmp_path / "old", "head", state, document)
    head = load_head(tmp_path / "old")
    assert head.calibration is not None
    assert head.calibration.stale is stale
    assert head.calibration.temperature == 2.0


def test_the_format_is_where_the_program_of_0_2_looks_for_it(tmp_path: Path) -> None:
    """It refuses what has a format above 2 in one sentence (docs/decisions/18-head-file.md)."""
    load_head(FILES / "slda.safetensors").save(tmp_path / "new")
    assert read_tensors(tmp_path / "new", "head")[1]["format"] == 3
