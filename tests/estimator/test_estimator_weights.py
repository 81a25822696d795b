"""Weights in scikit-learn's face and in the shell: of samples, of classes, routed, in a column."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lastlayer as ll
from lastlayer import Features, HeadClassifier
from lastlayer.errors import DataError, LastLayerError, OptionError, ShapeError, UnsupportedError
from lastlayer.estimator import fitting

Z, Y = load_iris(return_X_y=True)
W = np.arange(len(Y)) % 3
COPIES = np.arange(len(Y)).repeat(W)
NARROW = {"random_ridge": {"width": 50}, "random_slda": {"width": 50}}


@pytest.mark.parametrize("name", ["mean", "slda", "ridge", "qda", "random_slda", "median"])
def test_a_whole_weight_is_so_many_copies(name: str) -> None:
    """In fit, in partial_fit and in forget; a map is that of some rows without weights."""
    options = NARROW.get(name)
    z, y, w = np.tile(Z, (8, 1)), np.tile(Y, 8), np.tile(W, 8)
    copies = np.arange(len(y)).repeat(w)
    first = (z, y) if options else (z[::9], y[::9])
    made: dict[str, Any] = {"options": options, "random_state": 0}
    weighted, repeated = (HeadClassifier(name, **made).fit(*first) for _ in range(2))
    weighted.partial_fit(z, y, sample_weight=w)
    repeated.partial_fit(z[copies], y[copies])
    np.testing.assert_allclose(weighted.predict_proba(Z), repeated.predict_proba(Z), rtol=1e-6)
    weighted.forget(z[:200], y[:200], sample_weight=w[:200])
    gone = copies[copies < 200]
    repeated.forget(z[gone], y[gone])
    np.testing.assert_allclose(weighted.predict_proba(Z), repeated.predict_proba(Z), rtol=1e-6)
    assert weighted.head_.class_counts.tolist() == repeated.head_.class_counts.tolist()


def test_heads_without_weights_refuse_them() -> None:
    fading = HeadClassifier("mean", options={"half_life": 9.0})
    for clf in (HeadClassifier("slda", preset="paper"), fading):
        for how in ({"sample_weight": W}, {}):
            clf.set_params(class_weight=None if how else {0: 2.0})
            with pytest.raises((UnsupportedError, OptionError), match=r"these heads can: |prior"):
                clf.fit(Z, Y, **how)
        assert not hasattr(clf, "head_")
    with pytest.raises(UnsupportedError, match="must be whole numbers: it keeps so many copies"):
        HeadClassifier("knn").fit(Z, Y, sample_weight=W / 2)


@pytest.mark.parametrize("name", ["linear", "slda", "random_ridge"])
@pytest.mark.parametrize(("weight", "error"), [([1.0], ShapeError), (-W, DataError)])
def test_wrong_weights_change_nothing(name: str, weight: Any, error: type[Exception]) -> None:
    clf = HeadClassifier(name, options=NARROW.get(name), random_state=0).fit(Z, Y)
    before = clf.predict_proba(Z)
    for verb in (clf.fit, clf.partial_fit):
        with pytest.raises(error, match="sample_weight"):
            verb(Z, Y, sample_weight=weight)
    np.testing.assert_array_equal(clf.predict_proba(Z), before)


@pytest.mark.parametrize("name", ["ridge", "slda", "qda", "random_ridge", "mean"])
def test_balanced_classes_weigh_the_same_in_whatever_order_they_come(name: str) -> None:
    few = (Y != 1) | (np.arange(len(Y)) % 10 == 0)
    z, y = np.tile(Z[few], (10, 1)), np.tile(Y[few], 10)
    made: dict[str, Any] = {"options": NARROW.get(name), "random_state": 0}
    one = HeadClassifier(name, **made, class_weight="balanced").fit(z, y)
    other = HeadClassifier(name, **made, class_weight="balanced").fit(z, y)
    other.partial_fit(z[::-1], y[::-1])
    one.partial_fit(z, y)
    np.testing.assert_allclose(other.predict_proba(Z), one.predict_proba(Z), rtol=1e-5)
    if name == "ridge":
        by_class = HeadClassifier(name, options={"weigh": "classes"}).fit(z, y).partial_fit(z, y)
        np.testing.assert_array_equal(one.predict_proba(Z), by_class.predict_proba(Z))
        with pytest.raises(OptionError, match="leave out one of both"):
            one.set_params(options__weigh="samples").fit(z, y)


def test_balanced_gradient_heads_need_all_rows() -> None:
    clf = HeadClassifier("cosine", class_weight="balanced", random_state=0).fit(Z, Y)
    rare = Y != 2
    rare |= np.arange(len(Y)) % 10 == 0
    plain = HeadClassifier("cosine", random_state=0).fit(Z[rare], Y[rare])
    clf.fit(Z[rare], Y[rare])
    assert (clf.predict(Z) == 2).sum() > (plain.predict(Z) == 2).sum()
    with pytest.raises(OptionError, match="needs all rows at once"):
        clf.partial_fit(Z, Y)


def test_balanced_gradient_heads_are_calibrated_with_any_rows() -> None:
    """Through a file as from arrays: to calibrate is not to learn, and needs no weights."""
    both = [
        HeadClassifier("cosine", class_weight="balanced", random_state=0).fit(Z[::2], Y[::2])
        for _ in range(2)
    ]
    rows = Features.from_arrays(Z, Y, test=(Z[1::2], Y[1::2]))
    fitting.calibrate(both[0], rows, rows="test")
    both[1].calibrate(rows.test.z.numpy(), Y[1::2])
    assert both[0].head_.calibration == both[1].head_.calibration


def test_a_class_is_as_probable_as_it_weighs(tmp_path: Path) -> None:
    names = np.array(["setosa", "versicolor", "virginica"])[Y]
    for name in ("slda", "qda", "ridge"):
        clf = HeadClassifier(name, class_weight={"setosa": 1e6, "versicolor": 1e-4})
        noise = np.random.default_rng(0).normal(size=(150, 4))
        assert (clf.fit(noise, names).predict(noise) == "setosa").all()
        clf.save(tmp_path / "head")
        loaded = HeadClassifier.load(tmp_path / "head")
        assert loaded.get_params() == clf.get_params()
    numbered = HeadClassifier("slda", class_weight={1: 5}).fit(Z, Y)
    numbered.save(tmp_path / "head")
    assert HeadClassifier.load(tmp_path / "head").class_weight == {1: 5.0}
    for wrong in ({0: -1.0}, {0: "heavy"}, "even", {0: float("nan")}):
        with pytest.raises(LastLayerError, match="class_weight"):
            HeadClassifier(class_weight=wrong).fit(Z, Y)


def test_weights_are_routed() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        clf = HeadClassifier("slda").set_fit_request(sample_weight=True)
        clf.set_score_request(sample_weight=True)
        search = GridSearchCV(
            make_pipeline(StandardScaler().set_fit_request(sample_weight=False), clf),
            {"headclassifier__options__shrinkage": [0.0, 1.0]},
        )
        search.fit(Z, Y, sample_weight=W)
        best = search.best_estimator_[-1]
        assert best.head_.class_counts.tolist() == np.bincount(Y[COPIES]).tolist()


def test_a_grid_over_an_option() -> None:
    clf = HeadClassifier("slda", options={"prior": "empirical"})
    search = GridSearchCV(clf, {"options__shrinkage": [0.0, 0.9]}).fit(Z, Y)
    assert search.best_params_ == {"options__shrinkage": 0.0}
    assert search.best_estimator_.head_.options["prior"] == "empirical"
    assert search.best_estimator_.head_.options["shrinkage"] == 0.0
    assert clf.options == {"prior": "empirical"}
    assert clf.get_params()["options__prior"] == "empirical"
    with pytest.raises(OptionError, match="no option 'width'"):
        clf.set_params(options__width=3).fit(Z, Y)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    frame = pd.DataFrame(Z, columns=[f"z_{i}" for i in range(4)])
    frame["weight"], frame["kind"] = W + 0.5, np.array(["a", "b", "c"])[Y]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_a_column_of_weights(table: Path) -> None:
    how = {"embedding": "z_*", "label": "kind", "weight": "weight"}
    frame = pd.read_csv(table)[[f"z_{i}" for i in range(4)]]
    clf = ll.fit(table, "slda", **how)
    expected = HeadClassifier("slda").fit(Z, Y, sample_weight=W + 0.5)
    np.testing.assert_allclose(clf.predict_proba(frame), expected.predict_proba(Z), rtol=1e-4)
    assert clf.head_.class_counts.sum() == (W + 0.5).sum()
    assert clf.origin_ == ["learned 150 rows of rows.csv, with weights"]
    fitting.forget(clf, table, only="b", **how)
    assert clf.head_.seen.tolist() == [True, False, True]
    with pytest.raises(DataError, match="column 'kind' must hold numbers"):
        ll.fit(table, "slda", **{**how, "weight": "kind"})
    with pytest.raises(OptionError, match="rows of shards have no weights"):
        ll.fit([table, table], "slda", **how)
