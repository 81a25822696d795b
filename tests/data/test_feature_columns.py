"""Columns are known by their names: in tables, frames, features files and shards alike."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.cli import newcomer
from tests.shards.piles import cut, run

import lastlayer as ll
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.data.feature_columns import columns_in_order
from lastlayer.data.from_tables import import_features
from lastlayer.errors import DataError, FileFormatError, OptionError, ShapeError
from lastlayer.estimator import fitting

NAMES = ["width", "leg", "beak", "mass"]
ORDERS = [NAMES, ["mass", "beak", "width", "leg"], ["leg", "mass", "beak", "width"]]


def birds(n: int = 120, seed: int = 0) -> pl.DataFrame:
    """Four columns on scales of their own, two species."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    z = random.normal(size=(n, 4)) + 3 * y[:, None] * [1, -1, 1, -1] + [0, 10, 20, 30]
    return pl.DataFrame(
        {**dict(zip(NAMES, z.T, strict=True)), "label": np.array(["owl", "emu"])[y]}
    )


def table(path: Path, order: list[str], rows: pl.DataFrame | None = None) -> Path:
    """Write a table with its columns in an order; the label is the last one."""
    (birds() if rows is None else rows).select(*order, "label").write_csv(path)
    return path


def embedding(order: list[str]) -> str:
    return f"{order[0]}:{order[-1]}"


def features(path: Path, order: list[str], seed: int = 0) -> Path:
    data = ll.Features.from_frame(
        birds(seed=seed).select(*order, "label"), embedding(order), test=0.2
    )
    data.save(path)
    return path


def test_a_features_file_keeps_the_names_of_its_columns(tmp_path: Path) -> None:
    data = import_features(table(tmp_path / "b.csv", NAMES), embedding(NAMES))
    assert data.columns == tuple(NAMES)
    data.save(tmp_path / "b.safetensors")
    read = ll.load_features(tmp_path / "b.safetensors")
    assert read.columns == tuple(NAMES)
    assert read.fingerprint == data.fingerprint
    assert read.with_label("label").columns == tuple(NAMES)
    assert ll.load_features("cifar10").columns == ()


def test_a_name_for_each_column() -> None:
    data = ll.Features.from_frame(birds(), embedding(NAMES), test=0.2)
    with pytest.raises(ShapeError, match="columns must have 4 names, got "):
        ll.Features(data.train, data.test, data.names, columns=("a", "b"))


@pytest.mark.parametrize("order", ORDERS[1:])
def test_a_features_file_is_put_in_the_learned_order(tmp_path: Path, order: list[str]) -> None:
    clf = ll.fit(features(tmp_path / "a.safetensors", NAMES), "slda")
    right = fitting.predict(clf, features(tmp_path / "b.safetensors", order, seed=1))[1]
    assert right == fitting.predict(clf, features(tmp_path / "c.safetensors", NAMES, seed=1))[1]
    assert min(right.values()) > 0.95
    further = ll.fit(tmp_path / "b.safetensors", clf)
    assert further.feature_names_in_.tolist() == NAMES
    assert fitting.forget(further, tmp_path / "b.safetensors") == (96, "")


def test_a_features_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    clf = ll.fit(features(tmp_path / "a.safetensors", NAMES), "slda")
    other = birds().rename({"leg": "foot"})
    ll.Features.from_frame(other, "width:mass", test=0.2).save(tmp_path / "b.safetensors")
    with pytest.raises(DataError, match="'leg' is missing, 'foot' was not among them"):
        fitting.predict(clf, tmp_path / "b.safetensors")


def test_a_table_of_named_columns_needs_no_embedding_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the shell too; a file may have further columns, and those learned in another order."""
    monkeypatch.chdir(tmp_path)
    table(Path("a.csv"), NAMES)
    assert run(monkeypatch, "fit a.csv --embedding width:mass --head slda --out h.safetensors") == 0
    rows = birds(seed=1)
    shuffled = rows.select("mass", pl.lit(7.0).alias("year"), "width", "beak", "leg", "label")
    shuffled.write_csv("b.csv")
    assert run(monkeypatch, "predict h.safetensors b.csv --out l.csv") == 0
    assert "100.0 % right" in capsys.readouterr().out
    assert run(monkeypatch, "fit b.csv --head h.safetensors --out h2.safetensors") == 0
    once = ll.HeadClassifier.load("h.safetensors")
    once.partial_fit(rows.select(NAMES), rows["label"].to_numpy())
    twice = ll.HeadClassifier.load("h2.safetensors")
    z = rows.select(NAMES)
    np.testing.assert_allclose(twice.predict_proba(z), once.predict_proba(z), rtol=1e-4, atol=1e-6)


def test_partial_fit_puts_a_reordered_frame_in_order() -> None:
    rows = birds()
    y = rows["label"].to_numpy()
    clf = ll.HeadClassifier("slda").fit(rows.select(NAMES), y)
    for order in ORDERS[1:]:
        clf.partial_fit(rows.select(order), y)
        assert clf.score(rows.select(order), y) == clf.score(rows.select(NAMES), y) == 1


@pytest.mark.parametrize("split", ["test", "validation"])
def test_files_of_splits_are_put_in_the_order_of_train(tmp_path: Path, split: str) -> None:
    train = table(tmp_path / "train.csv", NAMES)
    later = table(tmp_path / "later.csv", ["width", "beak", "leg", "mass"], birds(40, seed=1))
    data = import_features(train, "width:mass", **{split: later})  # type: ignore[arg-type]
    z = birds(40, seed=1).select(NAMES).to_numpy().astype(np.float32)
    np.testing.assert_array_equal(data.test.z.numpy(), z)
    birds().rename({"leg": "foot"}).write_csv(later)
    with pytest.raises(DataError, match="must be those of train: 'leg' is missing, 'foot' was"):
        import_features(train, "width:mass", **{split: later})  # type: ignore[arg-type]


def pile(folder: Path, kind: str, rows: pl.DataFrame, orders: list[list[str]]) -> Path:
    """Write shards, the columns of each in another order."""
    folder.mkdir()
    for number, order in enumerate(orders):
        part = rows[number :: len(orders)].select(*order, "label")
        if kind == "ours":
            made = ll.Features.from_frame(part, embedding(order), test=0.1)
            made.save(folder / f"{number}.safetensors")
        else:
            part.write_parquet(folder / f"{number}.parquet")
    return folder


@pytest.mark.parametrize("kind", ["ours", "parquet"])
def test_shards_are_put_in_order_by_name(tmp_path: Path, kind: str) -> None:
    """The order is that of the first shard, or what a head has learned; threads or not."""
    mixed = [NAMES, ["width", "beak", "leg", "mass"], ["width", "leg", "beak", "mass"]]
    asked = {} if kind == "ours" else {"embedding": "width:mass"}
    rows, later = birds(600), birds(seed=1)
    one = ll.fit(pile(tmp_path / "a", kind, rows, mixed), "slda", rows="all", **asked)
    with cut(1):
        same = ll.fit(pile(tmp_path / "b", kind, rows, [NAMES] * 3), "slda", rows="all", **asked)
    assert one.feature_names_in_.tolist() == NAMES
    z = later.select(ORDERS[1])
    np.testing.assert_allclose(one.decision_function(z), same.decision_function(z), rtol=1e-9)
    head = ll.HeadClassifier("slda").fit(later.select(ORDERS[2]), later["label"].to_numpy())
    head = ll.fit(tmp_path / "a", head, rows="all")
    assert head.feature_names_in_.tolist() == ORDERS[2]
    assert head.score(later.select(NAMES), later["label"].to_numpy()) == 1


@pytest.mark.parametrize("kind", ["ours", "parquet"])
def test_a_shard_with_other_columns_is_refused_or_left_out(tmp_path: Path, kind: str) -> None:
    folder = pile(tmp_path / "a", kind, birds(), [NAMES])
    other = birds(60).rename({"leg": "foot"})
    if kind == "ours":
        ll.Features.from_frame(other, "width:mass", test=0.2).save(folder / "1.safetensors")
    else:
        other.write_parquet(folder / "1.parquet")
    asked = {} if kind == "ours" else {"embedding": "width:mass"}
    with pytest.raises(DataError, match=r"1\.\w+ must be those of the others: 'leg' is missing"):
        ll.fit(folder, "mean", **asked)
    clf = ll.fit(folder, "mean", broken="skip", **asked)
    assert "left out 1: 1." in clf.origin_[0]
    clf = ll.HeadClassifier("mean").fit(other.select("width", "foot", "beak", "mass"), [1, 2] * 30)
    with pytest.raises(DataError, match="'foot' is missing, 'leg' was not among them"):
        ll.fit(folder, clf, **asked)


@pytest.mark.parametrize("names", [["a", "b"], "abcd", [1, 2, 3, 4], 7])
def test_damaged_names_of_a_features_file_are_refused(tmp_path: Path, names: object) -> None:
    path = features(tmp_path / "a.safetensors", NAMES)
    tensors, metadata = read_tensors(path, "features")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    write_tensors(path, "features", tensors, {**metadata, "columns": names})
    with pytest.raises(FileFormatError, match="lacks a part of a features file"):
        ll.load_features(path)
    with pytest.raises((FileFormatError, ShapeError), match="columns"):
        ll.fit([path], "mean")


def test_vectors_have_no_names() -> None:
    z = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(columns_in_order(z, ("z",), ("a", "b", "c")), z)
    np.testing.assert_array_equal(columns_in_order(z, ("a", "b", "c"), ()), z)
    np.testing.assert_array_equal(
        columns_in_order(z, ("a", "b", "c"), ("c", "a", "b")), z[:, [2, 0, 1]]
    )
    with pytest.raises(DataError, match="some occur twice"):
        columns_in_order(z, ("a", "a", "b"), ("a", "b", "b"))


@pytest.mark.parametrize("asked", ["--embedding width:mass", ""])
def test_a_range_means_the_learned_columns_in_the_shell_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """In another order, ``width:mass`` was another range: the answers were those of chance."""
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "a.csv", NAMES)
    table(tmp_path / "b.csv", ORDERS[1], birds(seed=1))
    table(tmp_path / "c.csv", NAMES, birds(seed=1))
    for command in (
        "fit a.csv --embedding width:mass --head slda --out h.safetensors",
        f"predict h.safetensors b.csv --out b.parquet {asked}",
        f"predict h.safetensors c.csv --out c.parquet {asked}",
        f"fit b.csv --head h.safetensors --out further {asked}",
        f"forget further c.csv --out less {asked}",
        f"calibrate h.safetensors b.csv --rows all --out calibrated {asked}",
    ):
        assert newcomer.run(monkeypatch, command) == 0
    one, other = (pl.read_parquet(f"{name}.parquet")["label"] for name in "bc")
    assert one.equals(other)
    assert (one == birds(seed=1)["label"]).mean() > 0.95


def test_a_learned_column_that_a_table_lacks_is_named(tmp_path: Path) -> None:
    birds().write_csv(tmp_path / "rows.csv")
    clf = ll.fit(tmp_path / "rows.csv", "mean", embedding="width:mass")
    birds().rename({"mass": "weight"}).write_csv(tmp_path / "other.csv")
    with pytest.raises(OptionError, match=r"head has learned, but .*other\.csv lacks mass$"):
        fitting.predict(clf, tmp_path / "other.csv")
