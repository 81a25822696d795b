"""The bundled features are the paper's: what needs no gradient comes out as published."""

import pytest
import torch

from lastlayer import Features, load_features
from lastlayer.core.tensor_files import fingerprint
from lastlayer.data.load import BUNDLED, SHORT


def nearest_mean(data: Features) -> float:
    z, y = data.train.z.double(), data.train.y
    sums = torch.zeros(data.n_classes, data.in_features, dtype=z.dtype).index_add_(0, y, z)
    distance = torch.cdist(data.test.z.double(), sums / y.bincount()[:, None])
    return 100 * (distance.argmin(1) == data.test.y).double().mean().item()


@pytest.mark.parametrize(
    ("name", "label", "published"),
    [("cifar10", "class", 63.27), ("cifar100", "fine", 61.84), ("cifar100", "coarse", 65.55)],
)
def test_nearest_mean_is_as_published(name: str, label: str, published: float) -> None:
    # Half precision moves one of the 10,000 test images: 0.01 points.
    assert nearest_mean(load_features(name, label)) == pytest.approx(published, abs=0.015)


@pytest.mark.parametrize("name", BUNDLED)
def test_what_a_bundled_set_says_of_itself(name: str) -> None:
    data = load_features(name)
    assert (len(data.train), len(data.test), data.in_features) == (50_000, 10_000, 64)
    assert f"{data.origin.dataset}/{data.origin.backbone}" == name
    assert data.origin.normalisation == "authors"
    assert data.train.z.dtype == torch.float16
    assert data.fingerprint == fingerprint(data._tensors())
    assert data.train.y.bincount().unique().tolist() == [50_000 // data.n_classes]
    assert data.test.y.bincount().unique().tolist() == [10_000 // data.n_classes]


def test_short_names() -> None:
    assert all(full in BUNDLED for full in SHORT.values())
    assert load_features("cifar10").fingerprint == load_features(SHORT["cifar10"]).fingerprint


def test_each_coarse_label_holds_five_fine_classes() -> None:
    labels = load_features("cifar100").train.labels
    pairs = torch.stack([labels["coarse"], labels["fine"]], 1).unique(dim=0)
    assert pairs[:, 0].bincount().tolist() == [5] * 20
