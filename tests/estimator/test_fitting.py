"""``ll.fit`` refuses what cannot be meant, by its argument's name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lastlayer as ll
from lastlayer.errors import ArgumentError, DataError, LastLayerError, OptionError


@pytest.fixture
def data() -> ll.Features:
    z = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")
    return ll.Features.from_arrays(z, ["a", "b", "c"] * 4, test=0.25)


@pytest.mark.parametrize("rows", [np.array([]), object(), None, ["train"]])
def test_rows_are_one_of_four_words(data: ll.Features, rows: Any) -> None:
    with pytest.raises(ArgumentError, match="rows must be 'train' or 'validation' or"):
        ll.fit(data, rows=rows)


def test_another_split_is_named(data: ll.Features) -> None:
    with pytest.raises(OptionError, match="got 'training'"):
        ll.fit(data, rows="training")


@pytest.mark.parametrize("source", [[None], [1], set(), {"a": 1}, "x" * 300])
def test_data_is_named_when_it_is_no_data(source: Any) -> None:
    with pytest.raises(LastLayerError, match="must"):
        ll.fit(source)


@pytest.mark.parametrize("state", [None, Path("nothing"), "seed", -1, 2**32, 0.5, [1]])
def test_a_seed_is_a_whole_number(data: ll.Features, state: Any) -> None:
    with pytest.raises(LastLayerError, match="seed"):
        ll.fit(data, seed=state)


@pytest.mark.parametrize("head", ["slda", "ridge", "mean"])
def test_statistics_that_no_memory_holds_are_refused(head: str) -> None:
    with pytest.raises(OptionError, match="fit into memory"):
        ll.make_head(head, in_features=2**31, n_classes=10**6)


def test_what_to_do_about_broken_shards_is_one_of_two_words():
    with pytest.raises(ArgumentError, match="broken must be 'stop' or 'skip', got a ndarray"):
        ll.fit(ll.load_features("cifar10"), "mean", broken=np.array(["stop", "skip"]))


@pytest.mark.parametrize("head", ["slda", "linear", "knn"])
def test_features_whose_squares_are_lost_are_refused(head: str) -> None:
    """Every head but knn answered them at chance."""
    z = 1e-200 * np.random.default_rng(0).normal(size=(12, 3))
    for learn in (ll.HeadClassifier(head).fit, ll.HeadClassifier(head).partial_fit):
        with pytest.raises(DataError, match="must not all be below 1e-100"):
            learn(z, ["a", "b", "c"] * 4)
    z[0] = 1.0
    ll.HeadClassifier(head).fit(z, ["a", "b", "c"] * 4).predict(z[1:2])
