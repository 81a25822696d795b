"""What to label next: unsure rows, none like another, from pools of any size."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from wrong_labels import draw

import lastlayer as ll
from lastlayer.errors import DataError, LastLayerError, OptionError, OtherFeaturesWarning
from lastlayer.labels.choosing_rows import NOISE, STRATEGIES, WIDTH, informative


def learned(n: int = 60) -> tuple[ll.HeadClassifier, torch.Tensor]:
    """Give a classifier of a few rows, and a pool of others."""
    drawn = draw(600, 4, 6, apart=0.8)
    clf = ll.HeadClassifier("slda").fit(drawn.z[:n].numpy(), drawn.truth[:n].numpy())
    return clf, drawn.z[n:].float()


def test_each_pick_is_the_best_by_a_factor_made_anew() -> None:
    """Rank-one updates equal inverting the whole each time."""
    random = torch.Generator().manual_seed(0)
    z = torch.randn(40, 5, generator=random, dtype=torch.float64)
    unsure = torch.rand(40, generator=random, dtype=torch.float64)
    apart = torch.cdist(z, z).square()
    kernel = torch.exp(-apart / (WIDTH * 2 * (z - z.mean(dim=0)).square().sum(dim=1).mean()))
    chosen: list[int] = []
    for _ in range(12):
        own = kernel[chosen][:, chosen] + NOISE * torch.eye(len(chosen), dtype=torch.float64)
        explained = kernel[:, chosen] @ torch.linalg.inv(own) @ kernel[chosen]
        tells = unsure * (1 - explained.diagonal())
        tells[chosen] = -1
        chosen.append(int(tells.argmax()))
    assert informative(z, unsure, 12).tolist() == chosen


def test_near_copies_are_not_picked_twice() -> None:
    clf, pool = learned()
    pool = torch.cat([pool] + [pool + 1e-4 * torch.randn(pool.shape)] * 4)
    for strategy in ("informative", "coverage"):
        found = ll.next_rows(clf, pool, 20, strategy=strategy)
        assert len(set((found["row"] % 540).to_list())) == 20
    unsure = ll.next_rows(clf, pool, 20, strategy="margin")
    assert len(set((unsure["row"] % 540).to_list())) <= 5  # which is why it is not the default


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_are_chosen_once_and_the_same_for_a_seed(strategy: str) -> None:
    clf, pool = learned()
    found = ll.next_rows(clf, pool, 50, strategy=strategy, seed=3)
    assert found.columns == ["row", "label", "margin"]
    assert found["row"].n_unique() == 50
    assert found["row"].min() >= 0
    assert found["row"].max() < 540
    assert found["margin"].is_between(0, 1).all()
    assert found.equals(ll.next_rows(clf, pool, 50, strategy=strategy, seed=3))
    rows = pool[found["row"].to_list()].numpy()
    assert [str(x) for x in clf.predict(rows)] == found["label"].to_list()


def test_margin_takes_the_least_sure() -> None:
    clf, pool = learned()
    p = np.sort(clf.predict_proba(pool.numpy()), axis=1)
    expected = np.argsort(p[:, -1] - p[:, -2], kind="stable")[:9]
    found = ll.next_rows(clf, pool, 9, strategy="margin")
    assert sorted(found["row"].to_list()) == sorted(expected.tolist())


def test_without_a_head_the_pool_is_covered() -> None:
    drawn = draw(400, 8, 6, apart=6.0)
    found = ll.next_rows(None, drawn.z.float(), 8)
    assert found.columns == ["row"]
    assert len(drawn.truth[found["row"].to_list()].unique()) >= 7
    for strategy in ("informative", "margin"):
        with pytest.raises(OptionError, match="needs a head"):
            ll.next_rows(None, drawn.z, 8, strategy=strategy)
    assert ll.next_rows(None, drawn.z, 8, strategy="random").height == 8


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_read_in_pieces_is_as_a_tensor(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clf, pool = learned()
    frame = pl.DataFrame({"z": pool.tolist(), "name": [f"n{i}" for i in range(len(pool))]})
    frame.write_parquet(tmp_path / "pool.parquet")
    # A short table's splits are its own affair: a pool is taken whole.
    monkeypatch.setattr("lastlayer.labels.choosing_rows.MOST_ROWS", 50)
    found = ll.next_rows(clf, tmp_path / "pool.parquet", 10, strategy=strategy, id="name")
    assert found.columns == ["row", "name", "label", "margin"]
    assert (found["name"] == "n" + found["row"].cast(pl.String)).all()
    if strategy in ("informative", "margin"):
        whole = ll.next_rows(clf, pool, 10, strategy=strategy)
        assert set(found["row"]) == set(whole["row"])


def test_only_so_many_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clf, pool = learned()
    monkeypatch.setattr("lastlayer.labels.choosing_rows.ROOM", 1)
    monkeypatch.setattr("lastlayer.labels.choosing_rows.TIMES", 2)
    monkeypatch.setattr("lastlayer.labels.choosing_rows.AT_ONCE", 60)
    few = ll.next_rows(clf, pool, 10)
    margin = ll.next_rows(clf, pool, 20, strategy="margin")
    assert set(few["row"]) <= set(margin["row"])


def test_features_and_a_head_whose_calibration_is_out_of_date() -> None:
    drawn = draw(400, 3, 5)
    data = drawn.features()
    clf = ll.fit(data, "slda", calibration=0.2)
    clf.head_.observe(drawn.z[:3], drawn.truth[:3])
    before = clf.head_.calibration
    found = ll.next_rows(clf, data, 5)
    assert found.columns == ["split", "row", "label", "margin"]
    assert clf.head_.calibration is before


def test_rows_that_cannot_be_the_same_features_are_warned_of_unless_accepted() -> None:
    drawn = draw(800, 3, 5)
    clf = ll.fit(drawn.features(), "slda")
    ll.next_rows(clf, 1000 * drawn.z, 5, accept_features=True)
    with pytest.warns(OtherFeaturesWarning, match="times the variance"):
        ll.next_rows(clf, 1000 * drawn.z, 5)


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ({"count": 0}, OptionError, "count must be at least 1"),
        ({"count": 541}, DataError, "at least 541 rows, got 540"),
        ({"strategy": "best"}, OptionError, "strategy must be"),
        ({"id": "name"}, OptionError, "a tensor has none"),
        ({"pool": torch.zeros(9, 7)}, LastLayerError, "7"),
    ],
)
def test_what_cannot_be_is_refused(how: dict[str, Any], error: type[Exception], says: str) -> None:
    clf, pool = learned()
    asked: dict[str, Any] = {"pool": pool, "count": 5} | how
    with pytest.raises(error, match=says):
        ll.next_rows(clf, **asked)
