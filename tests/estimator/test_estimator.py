"""The scikit-learn face: its own checks for every head, labels of any kind, its usual company."""

import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_classifiers_classes,
    check_classifiers_train,
    parametrize_with_checks,
)

import lastlayer as ll
from lastlayer import HeadClassifier
from lastlayer.catalogue.head_cards import all_heads, split_name
from lastlayer.errors import DataError, DivergedError, LabelError, OptionError, UnknownNameError
from lastlayer.estimator.head_classifier import LOWEST
from lastlayer.heads import Head, load_head

QUICK = "linear", "cosine+single", "knn", "median", "mean", "slda", "ridge", "random_ridge"
every_head = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in all_heads()],
)
IRIS = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])


def classifiers(*names: str) -> list[HeadClassifier]:
    """Give classifiers with as few epochs as the checks' accuracy allows, to save time."""
    heads = (split_name(name) for name in names)
    return [HeadClassifier(head, mask=mask, epochs=30) for head, mask in heads]


FIRST = "cosine+single", "slda", "knn"  # of each family
UNMOVED = {  # by what their classes weigh
    **dict.fromkeys(("mean", "median", "cosine"), "a class stays where its rows are"),
    **dict.fromkeys(("weight_norm", "original_weight_norm"), "masks keep classes apart"),
    "linear_no_bias": "without a bias a class is no more probable by itself",
    "random_slda": "weights of 1,000 say that there is so much data that nothing is shrunk",
    **dict.fromkeys(("knn", "kernel_ridge"), "a weight must be so many copies"),
}


def expected_failures(estimator: HeadClassifier) -> dict[str, str]:
    """Say which heads take weights otherwise than scikit-learn's checks ask (decision 21)."""
    why = "masks keep classes apart" if estimator.mask == "single" else UNMOVED.get(estimator.head)
    found = {} if why is None else {"check_class_weight_classifiers": why}
    if estimator.head.startswith("random_"):
        rows = "a map is fixed by rows, whatever they weigh"
        found["check_sample_weight_equivalence_on_dense_data"] = rows
    return found


@parametrize_with_checks(classifiers(*FIRST), expected_failed_checks=expected_failures)
def test_scikit_learns_checks(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    classifiers(*(name for name in all_heads() if name not in FIRST)),
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks_of_the_other_heads(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("name", ["linear", "slda"])
@pytest.mark.parametrize("check", [check_classifiers_classes, check_classifiers_train])
def test_scikit_learns_checks_of_learning_as_it_comes(name: str, check: Any) -> None:
    check("HeadClassifier", HeadClassifier(name))


@every_head
def test_blobs_are_learned_by_default(name: str) -> None:
    z, y = make_blobs(n_samples=300, random_state=0)
    clf = HeadClassifier(name, random_state=0).fit(StandardScaler().fit_transform(z), y)
    assert clf.score(StandardScaler().fit_transform(z), y) > 0.88


@every_head
@pytest.mark.parametrize("preset", ["exact", "paper"])
def test_labels_may_be_new_at_any_call(name: str, preset: str) -> None:
    z, y = IRIS
    labels = NAMES[y]
    clf = HeadClassifier(name, preset=preset, random_state=0)
    clf.partial_fit(z[y == 1], labels[y == 1])
    assert clf.classes_.tolist() == ["versicolor"]
    assert set(clf.predict(z)) == {"versicolor"}
    clf.partial_fit(z[y != 1], labels[y != 1])
    assert clf.classes_.tolist() == NAMES.tolist()
    assert clf.head_.n_classes == 3
    logits = clf.head_(torch.from_numpy(z)).numpy()
    expected = np.maximum(logits[:, [1, 0, 2]], LOWEST)  # what stands for −∞
    np.testing.assert_array_equal(clf.decision_function(z), expected)
    np.testing.assert_allclose(clf.predict_proba(z).sum(axis=1), 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "weight_norm+single"])
def test_a_stream_is_learned_as_compare_learns_it(name: str) -> None:
    data = ll.load_features("cifar10")
    scenario = ll.make_scenario("cifar10", data)
    clf = HeadClassifier(name, random_state=0)
    for rows in scenario.tasks:
        clf.partial_fit(data.train.z[rows].numpy(), data.train.y[rows].numpy())
    compared = ll.compare(data, "cifar10", [name], orders=[0], device="cpu")["accuracy"][-1]
    assert clf.score(data.test.z.numpy(), data.test.y.numpy()) == pytest.approx(compared, abs=0.03)


@pytest.mark.parametrize("head", ["mean", "median", "slda", "knn"])
def test_a_stream_of_new_labels_ends_as_one_fit(head: str) -> None:
    z, y = IRIS
    streamed, whole = HeadClassifier(head), HeadClassifier(head, batch_size=7)
    for c in (2, 0, 1):
        streamed.partial_fit(z[y == c], NAMES[y[y == c]])
    whole.fit(z, NAMES[y])
    np.testing.assert_allclose(streamed.predict_proba(z), whole.predict_proba(z), atol=1e-9)
    np.testing.assert_array_equal(streamed.predict(z), whole.predict(z))


def test_declared_labels_wait_until_they_come() -> None:
    z, y = IRIS
    clf = HeadClassifier("linear", random_state=0)
    clf.partial_fit(z[y == 1], y[y == 1], classes=[0, 1, 2])
    assert clf.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(clf.predict_proba(z)[:, [0, 2]], 0)
    assert np.isfinite(clf.decision_function(z)).all()
    clf.partial_fit(z, y, classes=[0, 1, 2])
    assert (clf.predict_proba(z) > 0).all()


@pytest.mark.parametrize("name", ["linear", "cosine+group", "mean", "knn"])
def test_labels_may_be_declared_at_any_call(name: str) -> None:
    z, y = IRIS
    clf = HeadClassifier(name, random_state=0).partial_fit(z[y == 1], y[y == 1])
    clf.partial_fit(z[y == 1], y[y == 1], classes=[0, 1])
    assert clf.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(clf.predict_proba(z), [[0, 1]] * len(z))
    clf.partial_fit(z, y)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert set(clf.predict(z[y == 0])) <= {0, 1, 2}


def test_slda_gives_the_probabilities_of_scikit_learns_lda() -> None:
    z, y = IRIS
    options = {"shrinkage": 0.1, "prior": "empirical"}
    ours = HeadClassifier("slda", options=options).fit(z, y)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1).fit(z, y)
    np.testing.assert_allclose(ours.predict_proba(z), theirs.predict_proba(z), atol=1e-9)


def test_knn_gives_shares_of_the_vote() -> None:
    z, y = IRIS
    ours = HeadClassifier("knn", options={"k": 7}).fit(z[::2], y[::2])
    theirs = KNeighborsClassifier(7, weights="distance").fit(z[::2], y[::2])
    np.testing.assert_allclose(ours.predict_proba(z), theirs.predict_proba(z), atol=1e-9)


def test_two_classes_have_one_decision() -> None:
    z, y = IRIS[0][:100], IRIS[1][:100]
    clf = HeadClassifier("weight_norm", random_state=0).fit(z, NAMES[y])
    decision = clf.decision_function(z)
    assert decision.shape == (100,)
    np.testing.assert_array_equal(clf.predict(z), NAMES[(decision > 0).astype(int)])


def test_it_keeps_scikit_learns_company() -> None:
    z, y = IRIS
    pipeline = make_pipeline(StandardScaler(), HeadClassifier("slda"))
    grid = {"headclassifier__options": [{"shrinkage": s} for s in (0.01, 0.99)]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(z, NAMES[y])
    assert search.best_params_ == {"headclassifier__options": {"shrinkage": 0.01}}
    assert search.best_score_ > 0.95
    assert cross_val_score(HeadClassifier("mean"), z, y, cv=3).mean() > 0.9
    binary = y > 0
    assert cross_val_score(HeadClassifier("knn"), z, binary, cv=3, scoring="roc_auc").min() > 0.99
    search = GridSearchCV(HeadClassifier(epochs=10), {"head": ["mean", "cosine+single"]}, cv=2)
    assert search.fit(z, y).predict(z).shape == y.shape


@every_head
def test_equal_seeds_give_equal_classifiers(name: str) -> None:
    z, y = IRIS
    clf = HeadClassifier(name, epochs=3, batch_size=50, random_state=3).fit(z, y)
    for other in (clone(clf).fit(z, y), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(other.decision_function(z), clf.decision_function(z))
        other.partial_fit(z, y)
    assert clone(clf).get_params() == clf.get_params()


def test_its_head_can_be_saved(tmp_path: Path) -> None:
    z, y = IRIS
    clf = HeadClassifier("cosine+group", random_state=0).fit(z, y)
    clf.head_.save(tmp_path / "head.safetensors")
    head = load_head(tmp_path / "head.safetensors")
    np.testing.assert_array_equal(head(torch.from_numpy(z)), clf.decision_function(z))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"head": "sldaa"}, UnknownNameError, "did you mean 'slda'"),
        ({"head": "slda", "mask": "single"}, OptionError, "'slda' takes no mask"),
        ({"head": "slda", "lr": 0.1}, OptionError, "'slda' has no option 'lr'"),
        ({"options": {"k": 7}}, OptionError, "'slda' has no option 'k'; there are: shrinkage"),
        ({"batch_size": 0}, OptionError, "batch_size must be at least 1, got 0"),
        ({"epochs": 0}, OptionError, "epochs must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    clf = HeadClassifier(**settings)
    with pytest.raises(error, match=message):
        clf.fit(*IRIS)
    with pytest.raises(NotFittedError):
        clf.predict(IRIS[0])


def test_labels_are_words_or_numbers() -> None:
    z, y = IRIS
    clf = HeadClassifier("mean").fit(z, NAMES[y])
    with pytest.raises(
        LabelError, match="each label must be a str, as those learned before, got an int"
    ):
        clf.partial_fit(z, y)
    assert clf.score(z, NAMES[y]) > 0.9


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", ["fit", "partial_fit", "predict", "forget"])
def test_a_row_with_nan_is_named(method: str, value: float) -> None:
    z, y = make_blobs(40, centers=3, random_state=0)
    clf = HeadClassifier("slda").fit(z, y)
    z[7, 1] = z[20, 0] = value
    words = "features must be finite, got NaN or infinity in 2 of 40 rows, first in row 7"
    with pytest.raises(DataError, match=words):
        getattr(clf, method)(z, *([] if method == "predict" else [y]))


def test_a_classifier_that_diverges_is_as_before() -> None:
    z, y = IRIS
    clf = HeadClassifier("linear", lr=1e300, epochs=1).partial_fit(z[:50], y[:50])
    expected = clf.predict_proba(z)
    with pytest.raises(DivergedError, match="training diverged at step 2"):
        clf.partial_fit(1e30 * z, y)
    assert clf.classes_.tolist() == [0]
    assert np.array_equal(clf.predict_proba(z), expected)


@every_head
@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_after_an_error_a_classifier_goes_on_as_if_there_had_been_none(
    name: str, verb: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes after ten batches, when a new class has come too."""
    z, y = IRIS[0][::3], NAMES[IRIS[1][::3]]
    clf, twin = (
        HeadClassifier(name, epochs=1, batch_size=4, random_state=0).partial_fit(z[:30], y[:30])
        for _ in range(2)
    )
    take, calls = type(clf.head_)._check_batch, iter(range(100))

    def fail(head: Any, *batch: Any) -> Any:
        if next(calls) == 10:
            raise error
        return take(head, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(type(clf.head_), "_check_batch", fail)
        with pytest.raises(error):
            getattr(clf, verb)(z[:, :3] if verb == "fit" else z, y)
    assert clf.n_features_in_ == 4
    assert clf.classes_.tolist() == ["setosa", "versicolor"]
    assert np.array_equal(clf.predict_proba(z), twin.predict_proba(z))
    for one in (clf, twin):
        one.partial_fit(z[30:], y[30:])
    assert np.array_equal(clf.predict_proba(z), twin.predict_proba(z))


def test_an_interrupt_after_new_classes_were_learned_keeps_their_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the next label would get their column, and its rows would be counted as theirs."""
    z, y = IRIS[0], NAMES[IRIS[1]]
    clf = HeadClassifier("slda").partial_fit(z[:50], y[:50])
    learn = Head.observe_all

    def too_late(head: Head, *args: Any) -> None:
        learn(head, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Head, "observe_all", too_late)
        with pytest.raises(KeyboardInterrupt):
            clf.partial_fit(z[50:100], y[50:100])
    assert clf.classes_.tolist() == ["setosa", "versicolor"]
    clf.partial_fit(z[100:], y[100:])
    expected = HeadClassifier("slda").fit(z, y)
    assert clf.head_.class_counts is not None
    assert clf.head_.class_counts.tolist() == [50, 50, 50]
    assert np.array_equal(clf.predict(z), expected.predict(z))


def test_threads_that_ask_while_new_classes_come_get_labels_of_one_moment() -> None:
    """Labels sort before those known, so that columns move while others are answered."""
    z = np.repeat(np.eye(8) * 9, 20, axis=0)
    labels = np.repeat([f"{9 - c}" for c in range(8)], 20)
    for name in ("mean", "slda"):
        clf = HeadClassifier(name).fit(z[:40], labels[:40])
        done = threading.Event()

        def ask(clf: HeadClassifier = clf, done: threading.Event = done) -> set[tuple[str, ...]]:
            found = {tuple(clf.predict(z[[0, 39]]))}
            while not done.is_set():
                found.add(tuple(clf.predict(z[[0, 39]])))
            return found

        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask) for _ in range(3)]
            try:
                for c in range(2, 8):
                    clf.partial_fit(z[20 * c : 20 * c + 20], labels[20 * c : 20 * c + 20])
            finally:
                done.set()
        assert [one.result() for one in asked] == [{("9", "8")}] * 3
        assert clf.score(z, labels) == 1


def test_a_label_keeps_a_nul_at_its_end() -> None:
    """NumPy's own type of text drops it."""
    z = np.repeat(np.eye(2), 8, axis=0)
    data = ll.Features.from_arrays(z, ["a\0"] * 8 + ["a"] * 8, test=(z, ["a\0"] * 8 + ["a"] * 8))
    clf = ll.fit(data, "mean")
    assert clf.predict(z[[0, -1]]).tolist() == ["a\0", "a"]


def test_a_table_of_pyarrow_is_answered_as_the_frame_it_was_made_of() -> None:
    frame = pd.DataFrame(IRIS[0], columns=list("abcd"))
    clf = HeadClassifier("mean").fit(frame, IRIS[1])
    assert np.array_equal(clf.predict(pa.Table.from_pandas(frame)), clf.predict(frame))


def test_the_page_about_it_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "scikit-learn.md"
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S):
        exec(compile(block, page.name, "exec"), names)
    assert names["clf"].score(names["z"], names["y"]) > 0.95


@pytest.mark.parametrize("kind", [object, np.str_])
def test_a_label_too_long_to_be_a_name_is_refused(kind):
    y = np.array(["a", "b" * 1001], dtype=kind)
    with pytest.raises(LabelError, match="labels must have at most 1000 characters, got one of"):
        ll.HeadClassifier("mean").fit([[0.0], [1.0]], y)
    clf = ll.HeadClassifier("mean").fit([[0.0], [1.0]], np.array(["a", "b" * 1000], dtype=kind))
    with pytest.raises(LabelError, match="at most 1000"):
        clf.partial_fit([[2.0]], y[1:])
    assert len(clf.classes_) == 2


@pytest.mark.parametrize(("learned", "further"), [([0, 1], ["0", "1"]), (["owl", "emu"], [0, 1])])
def test_text_and_numbers_are_refused_side_by_side(learned: list[Any], further: list[Any]) -> None:
    z = np.eye(4)
    clf = HeadClassifier("slda").fit(z, learned * 2)
    with pytest.raises(LabelError, match=r"each label must be .*, as those learned before, got"):
        clf.partial_fit(z, further * 2)
    assert clf.classes_.tolist() == sorted(learned)
