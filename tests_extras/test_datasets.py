"""Folders that Hugging Face's datasets itself saved to disk."""

from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

import lastlayer as ll
from lastlayer.data.from_tables import import_features

pytestmark = pytest.mark.filterwarnings("default")  # those of the libraries are theirs
Z = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
NAMES = ["owl", "emu", "ibis"]
KIND = Features({"z": List(Value("float32")), "species": ClassLabel(names=NAMES)})


def dataset(rows: slice) -> Dataset:
    codes = (np.arange(12) % 3)[rows]
    return Dataset.from_dict({"z": list(Z[rows]), "species": codes.tolist()}, features=KIND)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_data_set(tmp_path: Path, shards: int) -> None:
    dataset(slice(12)).shuffle(seed=0).save_to_disk(tmp_path / "birds", num_shards=shards)
    data = import_features(tmp_path / "birds", label="species", test=0.25)
    assert repr(data) == "Features(9 train, 3 test, 5 features, labels: species (3))"
    assert set(data.names["species"]) == set(NAMES)
    for split in data.splits.values():
        for z, y in zip(split.z.numpy(), split.y.tolist(), strict=True):
            row = int(np.abs(Z - z).sum(axis=1).argmin())
            assert (Z[row] == z).all()
            assert NAMES[row % 3] == data.names["species"][y]


def test_splits(tmp_path: Path) -> None:
    parts = {"train": slice(6), "validation": slice(6, 9), "test": slice(9, 12)}
    DatasetDict({name: dataset(rows) for name, rows in parts.items()}).save_to_disk(tmp_path / "b")
    data = import_features(tmp_path / "b", label="species")
    for name, rows in parts.items():
        assert (data.splits[name].z.numpy() == Z[rows]).all()


def test_a_folder_is_learned_shard_by_shard(tmp_path: Path) -> None:
    """As Hugging Face's library writes it: many record batches, class names beside them."""
    parts = {"train": slice(9), "test": slice(9, 12)}
    DatasetDict({name: dataset(rows) for name, rows in parts.items()}).save_to_disk(
        tmp_path / "birds", num_shards={"train": 3, "test": 1}
    )
    clf = ll.fit(tmp_path / "birds", "mean", label="species")
    assert clf.origin_ == ["learned 9 rows of 3 shards"]
    assert clf.head_.class_names == sorted(NAMES)
    for place, name in enumerate(sorted(NAMES)):
        rows = [row for row in range(9) if NAMES[row % 3] == name]
        mean = clf.head_.statistics.mean[place].numpy()
        np.testing.assert_allclose(mean, Z[rows].astype(np.float64).mean(axis=0), rtol=1e-6)
    tested = ll.fit(tmp_path / "birds", "mean", label="species", rows="test")
    assert tested.origin_ == ["learned 3 rows of 1 shard"]
    dataset(slice(12)).to_parquet(tmp_path / "train-00000-of-00001.parquet")
    assert ll.fit(tmp_path / "train-*.parquet", "mean", label="species").n_features_in_ == 5
