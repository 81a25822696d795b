"""The worked example goes the whole way, on small data with a model that counts words."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import torch
from examples.intents import main

import lastlayer as ll


class Words:
    """Counts words, each in one of 32 places."""

    fingerprint = "words"

    def __call__(self, texts: Sequence[str]) -> torch.Tensor:
        z = torch.zeros(len(texts), 32)
        for row, text in enumerate(texts):
            for word in text.split():
                z[row, zlib.crc32(word.strip(",:").encode()) % 32] += 1
        return z


# The rows for testing use other words, and each word is a direction of its own here.
@pytest.mark.filterwarnings("ignore::lastlayer.errors.OtherFeaturesWarning")
def test_from_texts_to_labels(tmp_path: Path) -> None:
    right = main(Words(), tmp_path)
    assert list(right) == ["first", "new intent", "others, after it", "without the customer"]
    assert all(share > 1 / 7 for share in right.values()), right  # better than chance
    clf = ll.HeadClassifier.load(tmp_path / "head.safetensors")
    assert "travel" in clf.classes_
    assert clf.head_.class_counts is not None
    assert int(clf.head_.class_counts.sum()) == 6 * 80 + 20 - 6 * 9
    labels = pl.read_csv(tmp_path / "labels.csv")
    assert (labels.height, labels.columns) == (120, ["label", "probability"])
