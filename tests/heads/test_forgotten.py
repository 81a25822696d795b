"""Rows forgotten before, or held out, are not forgotten: fingerprints in the file know them."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastlayer import HeadClassifier
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import DataError, FileFormatError, OptionError
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


def kept(clf: HeadClassifier, record: str = forgotten.FORGOTTEN) -> tuple[str, ...]:
    return forgotten._kept(clf.head_, record)


@pytest.mark.parametrize("name", SUMS)
def test_rows_that_were_forgotten_are_known(name: str, tmp_path: Path) -> None:
    clf = made(name)
    clf.forget(Z[:9], Y[:9])
    # Through a file, and as numbers of another type.
    clf.save(tmp_path / "head")
    clf = HeadClassifier.load(tmp_path / "head")
    with pytest.raises(DataError, match=r"2 of these 4 rows were forgotten .*\(rows 0, 1\)"):
        clf.forget(Z[7:11], Y[7:11])
    clf.forget(Z[7:11], Y[7:11], again=True)
    clf.forget(Z[20:22], Y[20:22])


def test_a_refusal_leaves_all_as_it_was() -> None:
    clf = made()
    clf.forget(Z[:9], Y[:9])
    before = clf.head_.records, clf.predict_proba(Z)
    with pytest.raises(DataError, match="nothing was changed"):
        clf.forget(Z[:9], Y[:9])
    assert clf.head_.records == before[0]
    np.testing.assert_array_equal(clf.predict_proba(Z), before[1])


def test_rows_that_are_learned_again_can_be_forgotten_again() -> None:
    clf = made()
    clf.forget(Z[:9], Y[:9])
    clf.partial_fit(Z[3:6], Y[3:6])
    clf.forget(Z[3:6], Y[3:6])
    # The same rows of another class are others.
    clf.partial_fit(Z[:3], (Y[:3] + 1) % 3)
    with pytest.raises(DataError, match="3 of these 3 rows"):
        clf.forget(Z[:3], Y[:3])
    clf.forget(Z[:3], Y[:3], again=True)
    assert len(kept(clf)) == 12  # twice the first three, once the six others
    clf.partial_fit(Z[:3], Y[:3])
    assert len(kept(clf)) == 9


def test_equal_rows_may_be_forgotten_in_one_request() -> None:
    clf = made()
    clf.forget(np.tile(Z[:4], (3, 1)), np.tile(Y[:4], 3))


def test_parts_of_a_weight_are_no_repetition() -> None:
    clf = HeadClassifier("slda").fit(Z, Y)
    for share in (0.25, 0.5, 0.25):
        clf.forget(Z[:5], Y[:5], sample_weight=np.full(5, share))
    assert "forgotten" not in clf.head_.records


@pytest.mark.parametrize("name", ["knn", "median", "kernel_ridge"])
def test_heads_that_keep_rows_need_no_fingerprints(name: str) -> None:
    clf = made(name)
    for _ in range(3):
        clf.forget(Z[:5], Y[:5])
    assert "forgotten" not in clf.head_.records


def test_the_latest_are_kept_and_another_head_has_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forgotten, "MOST", 6)
    one, other = made(), made()
    for clf in (one, other):
        clf.forget(Z[:8], Y[:8])
    assert len(kept(one)) == 6
    assert not set(kept(one)) & set(kept(other))
    one.forget(Z[:2], Y[:2])
    assert "forgotten" not in one.merge(other).head_.records


@pytest.mark.parametrize("name", SUMS)
def test_rows_held_out_to_calibrate_with_cannot_be_forgotten(name: str, tmp_path: Path) -> None:
    options = {"width": 12} if name.startswith("random_") else None
    clf = HeadClassifier(name, options=options, calibration=0.2, random_state=0).fit(Z, Y)
    # The rows that a head can forget are those that it has learned, each once.
    clf.save(tmp_path / "head")
    clf, refused = HeadClassifier.load(tmp_path / "head"), []
    for row in range(N):
        try:
            clf.forget(Z[[row]], Y[[row]])
        except DataError as error:
            refused.append(str(error))
    assert len(refused) == len(kept(clf, forgotten.HELD_OUT)) == 12
    assert all(
        "this row was held out to calibrate with and not learned (row 0)" in said
        for said in refused
    )
    assert int(clf.head_.class_counts.sum()) == 0


def test_rows_held_out_that_are_learned_later_can_be_forgotten() -> None:
    clf = HeadClassifier("slda", calibration=0.2, random_state=0).fit(Z, Y)
    held = len(kept(clf, forgotten.HELD_OUT))
    clf.partial_fit(Z[:30], Y[:30])
    assert 0 < len(kept(clf, forgotten.HELD_OUT)) < held
    clf.forget(Z[:30], Y[:30])


def test_rows_that_were_not_learned_can_be_left_out() -> None:
    clf = HeadClassifier("slda", calibration=0.2, random_state=0).fit(Z, Y)
    clf.forget(Z[:20], Y[:20], skip_not_learned=True)
    learned = int(clf.head_.class_counts.sum())
    clf.forget(Z[:20], Y[:20], skip_not_learned=True)  # all of them are known by now
    assert int(clf.head_.class_counts.sum()) == learned
    clf.forget(Z, Y, skip_not_learned=True)
    assert int(clf.head_.class_counts.sum()) == 0
    with pytest.raises(OptionError, match="choose one"):
        clf.forget(Z, Y, skip_not_learned=True, again=True)


def test_a_refusal_warns_of_what_again_does() -> None:
    clf = HeadClassifier("slda", calibration=0.2, random_state=0).fit(Z, Y)
    with pytest.raises(DataError, match=r"skip_not_learned=True leaves .* what it never learned"):
        clf.forget(Z, Y)


def test_a_copy_of_a_row_that_was_learned_is_not_held_out() -> None:
    twice = np.tile(Z, (2, 1)), np.tile(Y, 2)
    clf = HeadClassifier("slda", calibration=0.3, random_state=0).fit(*twice)
    # Those of which both copies were held out are left, each twice.
    assert set(Counter(kept(clf, forgotten.HELD_OUT)).values()) == {2}


@pytest.mark.parametrize("name", ["knn", "linear"])
def test_heads_that_need_no_record_of_rows_held_out_have_none(name: str) -> None:
    clf = HeadClassifier(name, calibration=0.2, random_state=0).fit(Z, Y)
    assert forgotten.HELD_OUT not in clf.head_.records


@pytest.mark.parametrize(
    "record",
    [3, {}, {"key": "0" * 32}, {"key": "0" * 32, "rows": "0" * 15}, {"key": "", "rows": ""}],
)
def test_a_damaged_record_is_refused(record: Any, tmp_path: Path) -> None:
    clf = made()
    clf.forget(Z[:9], Y[:9])
    clf.save(tmp_path / "head")
    state, document = read_tensors(tmp_path / "head", "head")
    ignored = document["may_be_ignored"]
    assert len(ignored["forgotten"]["rows"]) == 9 * 16
    ignored["forgotten"] = record
    write_tensors(tmp_path / "head", "head", state, document)
    with pytest.raises(FileFormatError, match="stores its forgotten"):
        HeadClassifier.load(tmp_path / "head")
    clf.head_.records["forgotten"] = record
    with pytest.raises(OptionError, match="must be a dict of a key"):
        clf.save(tmp_path / "head")
