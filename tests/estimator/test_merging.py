"""Classifiers that learned apart from one another, merged: as one that has learned everything."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.errors import ArgumentError, LastLayerError, MergeError, OptionError

H = 4
COLUMNS = [f"width_{c}" for c in "abcd"]
NAMES = np.array(["ant", "bee", "cat", "dog", "emu"])
MERGING = [name for name, card in HEADS.items() if card.abilities.merges]
OPTIONS: dict[str, dict[str, Any]] = {
    "random_ridge": {"width": 12},
    "random_slda": {"width": 12},
    "sampled_linear": {"steps": 20},
}
PER_CLASS = [("slda", {"per_class_scatter": True}), ("qda", {"diagonal": True})]
CASES = [*((name, OPTIONS.get(name)) for name in MERGING), *PER_CLASS]
every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=str)


def made(name: str, options: dict[str, Any] | None, **more: Any) -> ll.HeadClassifier:
    return ll.HeadClassifier(name, options=options, random_state=3, **more)


def rows(seed: int, n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(len(NAMES), size=n)
    return random.normal(size=(n, H)) + 3 * np.eye(5, H)[y], y


def taught(clf: ll.HeadClassifier, z: np.ndarray, y: np.ndarray, order: Any, columns: Any) -> Any:
    """Learn class after class, in this order, of a frame with its columns in that order."""
    frame = pd.DataFrame(z, columns=COLUMNS)[[COLUMNS[c] for c in columns]]
    for c in order:
        if (y == c).any():
            clf.partial_fit(frame[y == c], NAMES[y[y == c]])
    return clf


@every_case
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_three_heads_whose_classes_came_in_other_orders(
    name: str, options: dict[str, Any] | None, seed: int
) -> None:
    z, y = rows(seed)
    random = np.random.default_rng(seed)
    machine = np.concatenate([range(3), random.integers(3, size=len(y) - 3)])
    heads = []
    for m in range(3):
        order, columns, mine = random.permutation(5), random.permutation(H), machine == m
        heads.append(taught(made(name, options), z[mine], y[mine], order, columns))
    merged = heads[0].merge(heads[1]).merge(heads[2])
    learned = [NAMES.tolist().index(label) for label in merged.labels_.names]
    # The classes of a head have numbers, and what sampled_linear draws depends on them.
    columns = [COLUMNS.index(name) for name in heads[0].feature_names_in_]
    union = taught(made(name, options), z, y, learned, columns)
    queries = pd.DataFrame(rows(seed + 1)[0], columns=COLUMNS)
    assert merged.classes_.tolist() == union.classes_.tolist()
    assert merged.head_.class_counts.tolist() == union.head_.class_counts.tolist()
    for answers in ("predict_proba", "novelty"):
        found, expected = getattr(merged, answers)(queries), getattr(union, answers)(queries)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_classes_that_only_one_head_knows_are_appended() -> None:
    z, y = rows(0)
    one = made("slda", None).fit(z[y >= 3], NAMES[y[y >= 3]])
    other = made("slda", None).fit(z[y < 4], NAMES[y[y < 4]])
    assert one.merge(other).head_.class_names == ["dog", "emu", "ant", "bee", "cat"]
    assert other.merge(one).head_.class_names == ["ant", "bee", "cat", "dog", "emu"]
    # What was merged keeps its own.
    assert one.head_.class_names == ["dog", "emu"]


def test_labels_that_were_only_declared_are_matched_too() -> None:
    z, y = rows(0)
    one = made("mean", None).partial_fit(z[y == 1], NAMES[y[y == 1]], classes=NAMES[[4, 1]])
    other = made("mean", None).partial_fit(z[y != 1], NAMES[y[y != 1]])
    union = made("mean", None).fit(z, NAMES[y])
    for merged in (one.merge(other), other.merge(one)):
        np.testing.assert_allclose(merged.predict_proba(z), union.predict_proba(z), atol=1e-9)


@pytest.mark.parametrize("kinds", [("int64", "int32"), ("float64", "float32"), ("U", "O")])
def test_labels_of_one_type_but_another_size_are_merged(kinds: tuple[str, str]) -> None:
    z, y = rows(0)
    labels = NAMES[y] if "U" in kinds else y
    parts = [
        made("mean", None).fit(z[y != gone], labels[y != gone].astype(kind))
        for gone, kind in zip((1, 3), kinds, strict=True)
    ]
    assert parts[0].merge(parts[1]).classes_.tolist() == np.unique(labels).tolist()


def test_text_and_numbers_are_not_merged() -> None:
    z, y = rows(0)
    one, other = made("mean", None).fit(z, y), made("mean", None).fit(z, NAMES[y])
    with pytest.raises(MergeError, match=r"of one type.*int64 in the first and str in the second"):
        one.merge(other)
    with pytest.raises(MergeError, match="got bool in the first and int64 in the second"):
        made("mean", None).fit(z, y == 1).merge(one)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (made("slda", None), made("mean", None), "of one kind.*'slda' and 'mean'"),
        (
            made("slda", None),
            made("slda", {"shrinkage": 0.1}),
            "but shrinkage is oas in the first and 0.1 in the second: .*--like HEAD",
        ),
        (made("mean", None), made("mean", None, feature_scale=2.0), "feature_scale is 1.0 in the"),
    ],
)
def test_heads_made_otherwise_are_refused_by_what_differs(
    first: ll.HeadClassifier, second: ll.HeadClassifier, said: str
) -> None:
    z, y = rows(0)
    with pytest.raises(MergeError, match=said):
        first.fit(z, y).merge(second.fit(z, y))


def test_other_columns_and_other_objects_are_refused() -> None:
    z, y = rows(0)
    one = made("mean", None).fit(pd.DataFrame(z, columns=COLUMNS), y)
    other = made("mean", None).fit(pd.DataFrame(z, columns=[*COLUMNS[1:], "x"]), y)
    with pytest.raises(LastLayerError, match="'width_a' is missing, 'x' was not among them"):
        one.merge(other)
    with pytest.raises(MergeError, match=r"features of one size.*4 and 3 columns"):
        made("mean", None).fit(z, y).merge(made("mean", None).fit(z[:, 1:], y))
    with pytest.raises(ArgumentError, match="other must be a HeadClassifier"):
        one.merge(one.head_)


def test_names_of_columns_are_kept_from_whichever_has_them() -> None:
    z, y = rows(0)
    named, plain = made("mean", None).fit(pd.DataFrame(z, columns=COLUMNS), y), made("mean", None)
    plain.fit(z, y)
    for merged in (named.merge(plain), plain.merge(named)):
        assert merged.feature_names_in_.tolist() == COLUMNS
    assert not hasattr(plain.merge(plain), "feature_names_in_")


def test_files_are_merged_into_one_that_says_so(tmp_path: Path) -> None:
    z, y = rows(0)
    files = []
    for m in range(3):
        files.append(tmp_path / f"{m}.safetensors")
        made("slda", None, calibration=0.2).fit(z[m::3], NAMES[y[m::3]]).save(files[-1])
    merged = ll.merge(*files)
    assert merged.origin_ == ["merged 3 heads of 23, 24 and 25 rows"]
    assert merged.head_.calibration is not None
    assert merged.head_.calibration.stale
    merged.save(tmp_path / "all")
    assert (
        ll.HeadClassifier.load(tmp_path / "all").predict(z).tolist() == merged.predict(z).tolist()
    )


def test_a_head_is_not_merged_with_itself(tmp_path: Path) -> None:
    z, y = rows(0)
    clf = made("mean", None).fit(z, y)
    clf.save(tmp_path / "a")
    with pytest.raises(OptionError, match="given twice: its rows would count twice"):
        ll.merge(tmp_path / "a", str(tmp_path / ".." / tmp_path.name / "a"))
    with pytest.raises(OptionError, match="a classifier is given twice"):
        ll.merge(clf, clf)
    with pytest.raises(OptionError, match="at least two heads, got 1"):
        ll.merge(clf)


def test_the_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    z, y = rows(0)
    for name in ("mean", "slda"):
        made(name, None).fit(z, y).save(tmp_path / name)
    with pytest.raises(MergeError, match=r"cannot merge .*mean with .*slda: two heads must be of"):
        ll.merge(tmp_path / "mean", tmp_path / "slda")


@pytest.mark.parametrize("name", ["random_ridge", "slda"])
def test_heads_begun_like_the_first_are_merged_as_one(name: str, tmp_path: Path) -> None:
    """Three machines, whose tables have other classes first and other orders of columns."""
    z, y = rows(0, n=3300)
    frame = pd.DataFrame(z, columns=COLUMNS)
    tables = []
    for m, columns in enumerate((COLUMNS, COLUMNS[::-1], COLUMNS)):
        part = frame[columns].assign(label=NAMES[y])[m::3]
        part = part.sort_values("label", ascending=m == 1) if m else part
        part = part if m < 2 else part[part["label"] != "ant"]
        tables.append(tmp_path / f"{m}.csv")
        part.to_csv(tables[-1], index=False)
    how: dict[str, Any] = {"embedding": "width_*", "label": "label"}
    options = OPTIONS.get(name)
    first = ll.fit(tables[0], name, **how, options=options, seed=5)
    first.save(tmp_path / "one")
    others = [ll.fit(table, like=tmp_path / "one", **how) for table in tables[1:]]
    merged = ll.merge(tmp_path / "one", *others)
    union = ll.fit(tables[0], name, **how, options=options, seed=5)
    for table in tables[1:]:
        union = ll.fit(table, union, **how)
    assert merged.head_.class_counts.tolist() == union.head_.class_counts.tolist()
    found, expected = merged.predict_proba(frame), union.predict_proba(frame)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert others[0].head_.class_names == first.head_.class_names


def test_what_cannot_be_begun_like_is_refused() -> None:
    z, y = rows(0)
    with pytest.raises(OptionError, match=r"map of a head must be fixed.*on 910 more rows"):
        made("random_ridge", OPTIONS["random_ridge"]).fit(z, y).fresh()
    with pytest.raises(LastLayerError, match="cannot be learned in parts"):
        made("linear", None).fit(z, y).fresh()


def test_heads_drawn_with_other_seeds_are_refused_without_their_numbers() -> None:
    z, y = rows(0)
    one, other = (
        ll.HeadClassifier("random_slda", options={"width": 12}, random_state=seed).fit(z, y)
        for seed in (1, 2)
    )
    with pytest.raises(MergeError, match="merged, but they were drawn with different seeds: fit"):
        one.merge(other)
