"""A request to forget that comes again is noticed, by fingerprints of rows forgotten of late."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastlayer import HeadClassifier
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import FileFormatError, ForgottenBeforeWarning, OptionError
from lastlayer.heads import forgotten

N, H = 60, 4
Y = np.arange(N) % 3
Z = np.random.default_rng(0).normal(size=(N, H)) + 3 * np.eye(3, H)[Y]
SUMS = ["mean", "slda", "ridge", "qda", "sampled_linear", "random_ridge", "random_slda"]


def made(name: str = "slda") -> HeadClassifier:
    options = {"width": 12} if name.startswith("random_") else None
    return HeadClassifier(name, options=options, random_state=0).fit(
        np.tile(Z, (3, 1)), np.tile(Y, 3)
    )


def quiet(clf: HeadClassifier, *rows: Any, **how: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.forget(*rows, **how)


@pytest.mark.parametrize("name", SUMS)
def test_rows_that_were_forgotten_are_known(name: str, tmp_path: Path) -> None:
    clf = made(name)
    quiet(clf, Z[:9], Y[:9])
    # Through a file, and as numbers of another type.
    clf.save(tmp_path / "head")
    clf = HeadClassifier.load(tmp_path / "head")
    with pytest.warns(ForgottenBeforeWarning, match="2 of these 4 rows were forgotten before"):
        clf.forget(Z[7:11], Y[7:11])
    quiet(clf, Z[20:22], Y[20:22])


def test_a_warning_that_is_an_error_leaves_all_as_it_was() -> None:
    clf = made()
    quiet(clf, Z[:9], Y[:9])
    before = clf.head_.records, clf.predict_proba(Z)
    with pytest.raises(ForgottenBeforeWarning):
        quiet(clf, Z[:9], Y[:9])
    assert clf.head_.records == before[0]
    np.testing.assert_array_equal(clf.predict_proba(Z), before[1])


def test_rows_that_are_learned_again_can_be_forgotten_again() -> None:
    clf = made()
    quiet(clf, Z[:9], Y[:9])
    clf.partial_fit(Z[3:6], Y[3:6])
    quiet(clf, Z[3:6], Y[3:6])
    # The same rows of another class are others.
    clf.partial_fit(Z[:3], (Y[:3] + 1) % 3)
    with pytest.warns(ForgottenBeforeWarning, match="3 of these 3 rows"):
        clf.forget(Z[:3], Y[:3])
    assert len(forgotten._kept(clf.head_)) == 12  # twice the first three, once the six others
    clf.partial_fit(Z[:3], Y[:3])
    assert len(forgotten._kept(clf.head_)) == 9


def test_equal_rows_may_be_forgotten_in_one_request() -> None:
    clf = made()
    quiet(clf, np.tile(Z[:4], (3, 1)), np.tile(Y[:4], 3))


def test_parts_of_a_weight_are_no_repetition() -> None:
    clf = HeadClassifier("slda").fit(Z, Y)
    for share in (0.25, 0.5, 0.25):
        quiet(clf, Z[:5], Y[:5], sample_weight=np.full(5, share))
    assert "forgotten" not in clf.head_.records


@pytest.mark.parametrize("name", ["knn", "median", "kernel_ridge"])
def test_heads_that_keep_rows_need_no_fingerprints(name: str) -> None:
    clf = made(name)
    for _ in range(3):
        quiet(clf, Z[:5], Y[:5])
    assert "forgotten" not in clf.head_.records


def test_the_latest_are_kept_and_another_head_has_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgotten, "MOST", 6)
    one, other = made(), made()
    for clf in (one, other):
        quiet(clf, Z[:8], Y[:8])
    assert len(forgotten._kept(one.head_)) == 6
    assert not set(forgotten._kept(one.head_)) & set(forgotten._kept(other.head_))
    quiet(one, Z[:2], Y[:2])
    assert "forgotten" not in one.merge(other).head_.records


@pytest.mark.parametrize(
    "kept",
    [3, {}, {"key": "0" * 32}, {"key": "0" * 32, "rows": "0" * 15}, {"key": "", "rows": ""}],
)
def test_a_damaged_record_is_refused(kept: Any, tmp_path: Path) -> None:
    clf = made()
    quiet(clf, Z[:9], Y[:9])
    clf.save(tmp_path / "head")
    state, document = read_tensors(tmp_path / "head", "head")
    ignored = document["may_be_ignored"]
    assert len(ignored["forgotten"]["rows"]) == 9 * 16
    ignored["forgotten"] = kept
    write_tensors(tmp_path / "head", "head", state, document)
    with pytest.raises(FileFormatError, match="stores its forgotten"):
        HeadClassifier.load(tmp_path / "head")
    clf.head_.records["forgotten"] = kept
    with pytest.raises(OptionError, match="must be a dict of a key"):
        clf.save(tmp_path / "head")
