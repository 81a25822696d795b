"""A classifier in a file: labels of any type come back, it goes on, and it forgets by label."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.datasets import load_iris

from lastlayer import HeadClassifier, load_head
from lastlayer.catalogue.head_cards import HEADS, PAPER_HEADS
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import DataError, FileFormatError, LabelError, UnsupportedError
from lastlayer.heads import make_head

Z, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
LABELS: dict[str, Any] = {
    "text": NAMES[Y],
    "object": pd.Series(NAMES[Y], dtype=object).to_numpy(),
    "int": Y - 1,
    "uint8": Y.astype(np.uint8),
    "float": Y.astype(np.float64) + 0.0,
    "bool": Y == 1,
    "odd text": np.array(["é\n", "", "\x00 7"])[Y],
}


def test_a_head_without_classes_learns_labels_of_any_type(tmp_path: Path) -> None:
    make_head("slda", 4).save(tmp_path / "head")
    clf = HeadClassifier.load(tmp_path / "head").partial_fit(Z, NAMES[Y])
    assert clf.classes_.tolist() == NAMES.tolist()


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_with_their_type(tmp_path: Path, kind: str) -> None:
    labels = LABELS[kind]
    clf = HeadClassifier("slda").fit(Z, labels)
    clf.save(tmp_path / "c")
    again = HeadClassifier.load(tmp_path / "c")
    assert again.classes_.dtype.kind == clf.classes_.dtype.kind
    assert again.classes_.tolist() == clf.classes_.tolist()
    assert again.predict(Z).tolist() == clf.predict(Z).tolist()
    np.testing.assert_array_equal(again.predict_proba(Z), clf.predict_proba(Z))
    assert again.get_params() == clf.get_params()


@pytest.mark.parametrize("name", [*HEADS, "cosine+single", "weight_norm+group"])
def test_what_was_loaded_goes_on_to_the_bit(tmp_path: Path, name: str) -> None:
    """New labels in between, and random numbers where they were."""
    options = {"width": 20} if name.startswith("random_") else None
    first, then = Y != 1, Y == 1
    clf = HeadClassifier(name, random_state=3, epochs=2, feature_scale=2.0, options=options)
    clf.partial_fit(Z[first], NAMES[Y[first]])
    clf.save(tmp_path / "c")
    again = HeadClassifier.load(tmp_path / "c")
    for one in (clf, again):
        one.partial_fit(Z[then], NAMES[Y[then]])
    assert again.classes_.tolist() == NAMES.tolist()
    np.testing.assert_array_equal(again.predict_proba(Z), clf.predict_proba(Z))
    assert again.get_params() == clf.get_params()


def test_the_file_is_the_heads_own(tmp_path: Path) -> None:
    clf = HeadClassifier("mean").partial_fit(Z[Y == 2], NAMES[Y[Y == 2]]).partial_fit(Z, NAMES[Y])
    clf.save(tmp_path / "c")
    head = load_head(tmp_path / "c")
    assert head.class_names == ["virginica", "setosa", "versicolor"]
    assert head.predict(torch.from_numpy(Z[:1])).tolist() == [1]
    HeadClassifier("mean", feature_scale=2.0).fit(Z, Y).save(tmp_path / "scaled")
    with pytest.raises(FileFormatError, match=r"divide_by.*HeadClassifier\.load"):
        load_head(tmp_path / "scaled")


@pytest.mark.parametrize("name", PAPER_HEADS)
def test_any_head_is_a_classifier(name: str, tmp_path: Path) -> None:
    """Also one whose classes have no names."""
    head = make_head(name, Z.shape[1])
    head.observe(torch.as_tensor(Z).float(), torch.arange(len(Z)) % 3)
    head.save(tmp_path / "head")
    clf = HeadClassifier.load(tmp_path / "head")
    assert clf.classes_.tolist() == list(range(clf.head_.n_classes))
    z = np.random.default_rng(0).normal(size=(5, clf.n_features_in_))
    clf.partial_fit(z, [7] * 5)
    assert clf.predict(z).dtype == np.int64
    assert 7 in clf.classes_


def test_damaged_parts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    HeadClassifier("linear", random_state=0).fit(Z, Y).save(path)
    state, document = read_tensors(path, "head")
    for change in (
        {"labels": "int65"}, {"labels": 3}, {"classifier": []},
        {"classifier": {"nothing": 1}}, {"class_names": ["a", "b", "c"]}, {"feature_map": 2},
        {"classifier": {**document["needed"]["classifier"], "random": [1]}},
    ):  # fmt: skip
        write_tensors(path, "head", state, {**document, "needed": document["needed"] | change})
        with pytest.raises(FileFormatError):
            HeadClassifier.load(path).predict(Z)


@pytest.mark.parametrize("name", [n for n, card in HEADS.items() if card.abilities.forgets])
def test_samples_are_forgotten_by_label(name: str) -> None:
    options = {"width": 20} if name.startswith("random_") else None
    stays = np.arange(150) % 5 > 0
    clf = HeadClassifier(name, random_state=0, options=options).fit(Z, NAMES[Y])
    assert clf.forget(Z[~stays], NAMES[Y[~stays]]) is clf
    assert clf.head_.class_counts is not None
    assert clf.head_.class_counts.tolist() == [40, 40, 40]
    if name.startswith("random_"):
        return  # its map has seen what was forgotten
    rest = HeadClassifier(name, random_state=0).fit(Z[stays], NAMES[Y[stays]])
    np.testing.assert_allclose(clf.predict_proba(Z), rest.predict_proba(Z), atol=1e-6)


def test_a_class_is_forgotten_by_label() -> None:
    clf = HeadClassifier("mean").partial_fit(Z[Y == 2], [30] * 50).partial_fit(Z[Y < 2], Y[Y < 2])
    assert 30 not in clf.forget_class(30).predict(Z)
    assert clf.head_.class_counts is not None
    assert clf.head_.class_counts.tolist() == [0, 50, 50]
    with pytest.raises(UnsupportedError, match="cannot forget a class exactly"):
        HeadClassifier("slda").fit(Z, Y).forget_class(1)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (["rose"], LabelError, "unknown label 'rose' in row 0; there are: setosa, versicolor"),
        ([1], LabelError, "each label must be a str, as those learned before, got an int"),
        (["setosa"], DataError, "cannot forget this sample: what would remain"),
    ],
)
def test_wrong_forgettings_change_nothing(labels: list[Any], error: type, message: str) -> None:
    clf = HeadClassifier("slda").fit(Z, NAMES[Y])
    before = clf.predict_proba(Z)
    with pytest.raises(error, match=message):
        clf.forget([[900.0, 1.0, 1.0, 1.0]], labels)
    np.testing.assert_array_equal(clf.predict_proba(Z), before)
    with pytest.raises(LabelError, match="unknown label 'rose'"):
        clf.forget_class("rose")


def test_a_head_made_by_hand_goes_on_by_name(tmp_path: Path) -> None:
    head = make_head("slda", 4)
    head.observe(torch.from_numpy(Z), torch.from_numpy(Y))
    head.class_names = NAMES.tolist()
    head.save(tmp_path / "h")
    clf = HeadClassifier.load(tmp_path / "h")
    assert clf.score(Z, NAMES[Y]) > 0.95
    assert clf.partial_fit(Z, NAMES[Y]).classes_.tolist() == NAMES.tolist()


COLUMNS = ["sepal length", "sepal width", "petal length", "petal width"]
MIXED = [2, 0, 3, 1]  # another order of the columns
SOME = np.arange(150) % 5 == 0


def a_frame(kind: str, z: Any, columns: list[str]) -> Any:
    frame: Any = pd.DataFrame if kind == "pandas" else pl.DataFrame
    return frame(dict(zip(columns, z.T, strict=True)))


@pytest.mark.parametrize("name", [n for n, card in HEADS.items() if card.abilities.forgets])
def test_every_verb_divides_by_the_scale(name: str) -> None:
    """A classifier with a scale is one without, on features that somebody else has divided."""
    options = {"width": 20} if name.startswith("random_") else None
    scaled = HeadClassifier(name, feature_scale=8.0, random_state=0, options=options)
    plain = HeadClassifier(name, random_state=0, options=options)
    for clf, z in ((scaled, Z), (plain, Z / 8)):
        clf.fit(z[~SOME], NAMES[Y[~SOME]]).partial_fit(z[SOME], NAMES[Y[SOME]])
        clf.forget(z[SOME], NAMES[Y[SOME]]).calibrate(z[SOME], NAMES[Y[SOME]])
    np.testing.assert_array_equal(scaled.predict_proba(Z), plain.predict_proba(Z / 8))
    np.testing.assert_array_equal(scaled.decision_function(Z), plain.decision_function(Z / 8))
    np.testing.assert_array_equal(scaled.novelty(Z), plain.novelty(Z / 8))
    unknown = (c.predict_or_unknown(z, 0.1) for c, z in ((scaled, Z), (plain, Z / 8)))
    np.testing.assert_array_equal(*unknown)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_columns_are_put_in_order_by_name(tmp_path: Path, kind: str) -> None:
    """In every verb, and after save and load too."""
    labels, mixed = NAMES[Y], a_frame(kind, Z[:, MIXED], [COLUMNS[c] for c in MIXED])
    straight = a_frame(kind, Z, COLUMNS)
    clf, plain = HeadClassifier("slda").fit(straight, labels), HeadClassifier("slda").fit(Z, labels)
    clf.save(tmp_path / "c")
    clf = HeadClassifier.load(tmp_path / "c")
    assert clf.feature_names_in_.tolist() == COLUMNS
    np.testing.assert_array_equal(clf.predict_proba(mixed), plain.predict_proba(Z))
    clf.partial_fit(mixed, labels)
    np.testing.assert_array_equal(
        clf.predict_proba(straight), plain.partial_fit(Z, labels).predict_proba(Z)
    )
    clf.forget(mixed, labels).calibrate(mixed, labels)
    plain.forget(Z, labels).calibrate(Z, labels)
    for verb in ("predict", "predict_proba", "decision_function", "novelty", "predict_or_unknown"):
        found, expected = getattr(clf, verb)(mixed), getattr(plain, verb)(Z)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_other_columns_are_refused_in_every_verb(tmp_path: Path, kind: str) -> None:
    labels = NAMES[Y]
    HeadClassifier("slda", calibration=0.2, random_state=0).fit(
        a_frame(kind, Z, COLUMNS), labels
    ).save(tmp_path / "c")
    clf = HeadClassifier.load(tmp_path / "c")
    before = clf.predict_proba(a_frame(kind, Z, COLUMNS))
    other = a_frame(kind, Z, [*COLUMNS[:3], "leaf width"])
    answers = ("predict", "predict_proba", "decision_function", "novelty", "predict_or_unknown")
    for verb in (*answers, "partial_fit", "forget", "calibrate"):
        given = (other,) if verb in answers else (other, labels)
        with pytest.raises(ValueError, match=r"unseen at fit time:\n- leaf width\n.*missing:\n- p"):
            getattr(clf, verb)(*given)
    np.testing.assert_array_equal(clf.predict_proba(a_frame(kind, Z, COLUMNS)), before)


def test_names_of_columns_go_with_what_is_learned_anew(tmp_path: Path) -> None:
    clf = HeadClassifier("mean").fit(pd.DataFrame(Z, columns=COLUMNS), Y)
    clf.fit(Z, Y).save(tmp_path / "c")
    assert not hasattr(HeadClassifier.load(tmp_path / "c"), "feature_names_in_")
    one = HeadClassifier("mean").fit(pd.DataFrame({"width": Z[:, 0]}), Y)
    one.save(tmp_path / "c")
    assert HeadClassifier.load(tmp_path / "c").feature_names_in_.tolist() == ["width"]


@pytest.mark.parametrize("names", ["abcd", ["a", "b"], [1, 2, 3, 4], {"a": 1}])
def test_damaged_names_of_columns_are_refused(tmp_path: Path, names: Any) -> None:
    path = tmp_path / "c"
    HeadClassifier("mean").fit(pd.DataFrame(Z, columns=COLUMNS), Y).save(path)
    state, document = read_tensors(path, "head")
    needed = document["needed"] | {"feature_names": names}
    write_tensors(path, "head", state, {**document, "needed": needed})
    with pytest.raises(FileFormatError):
        HeadClassifier.load(path)
