r"""Names of classes: different labels have different names, whichever door they come through."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lastlayer as ll
from lastlayer import Features, HeadClassifier
from lastlayer.core.names import ClassName, class_name, label_of, printable
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.data.from_tables import import_features
from lastlayer.errors import LabelError
from lastlayer.estimator.fitting import fit, forget, predict
from lastlayer.heads.class_names import called

# Mostly what the code is about: odd characters, backslashes, and what follows one.
PARTS = st.sampled_from([*"\n\r\t\0\x1b\x7f\x85\u2028\u202e\ufffe\ud800", *"\\ntrxu0af28"])
LABELS = st.lists(PARTS | st.characters(), max_size=12).map("".join)
ODD = ["owl\n", "owl\\n", "owl\\\n", "owl\\\\n", "\u202eemu", "C:\\new", "C:\\data", "plain"]


@given(LABELS, LABELS)
@example("a\n", "a\\n")
@example("a\\\n", "a\\\\n")
@example("\\", "\\\\")
@example("\\x0\n", "\\x0\\n")
@example("\\ud80", "\\ud800")
def test_a_name_is_printable_and_gives_its_label_back(one: str, other: str) -> None:
    name = class_name(one)
    assert label_of(name) == one
    assert printable(name) == name
    assert (name == class_name(other)) == (one == other)
    name.encode()


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"], exclude_characters="\\")))
def test_ordinary_text_is_its_own_name(label: str) -> None:
    assert class_name(label) == label_of(label) == label


@pytest.mark.parametrize("label", ["C:\\data", "\\\\server\\share", "\\alpha", "a\\", "\\x4"])
def test_a_backslash_that_spells_nothing_stays(label: str) -> None:
    assert class_name(label) == label


def rows(labels: list[str], each: int = 8) -> tuple[Any, list[str]]:
    """Give rows of classes that are well apart."""
    y = np.arange(each * len(labels)) % len(labels)
    noise = np.random.default_rng(0).normal(size=(len(y), len(labels))).astype(np.float32)
    return 8 * np.eye(len(labels), dtype=np.float32)[y] + noise, [labels[c] for c in y]


def table(labels: list[str]) -> pd.DataFrame:
    z, y = rows(labels)
    return pd.DataFrame({**{f"z_{i}": z[:, i] for i in range(z.shape[1])}, "species": y})


def from_file(path: Path, suffix: str) -> Features:
    path = path / f"birds.{suffix}"
    frame = pl.DataFrame(table(ODD).to_dict("list"))
    (frame.write_csv if suffix == "csv" else frame.write_parquet)(path)
    return import_features(path, label="species", test=0.5)


DOORS: dict[str, Callable[[Path], Features]] = {
    "arrays": lambda path: Features.from_arrays(*rows(ODD), test=0.5),
    "test arrays": lambda path: Features.from_arrays(*rows(ODD), test=rows(ODD)),
    "objects": lambda path: Features.from_arrays(
        rows(ODD)[0], np.array(rows(ODD)[1], dtype=object), test=0.5
    ),
    "pandas": lambda path: Features.from_frame(table(ODD), label="species", test=0.5),
    "polars": lambda path: Features.from_frame(
        pl.DataFrame(table(ODD).to_dict("list")), label="species", test=0.5
    ),
    "csv": lambda path: from_file(path, "csv"),
    "parquet": lambda path: from_file(path, "parquet"),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_names_labels_alike(tmp_path: Path, door: str) -> None:
    data = DOORS[door](tmp_path)
    names = data.names[data.label]
    assert names == tuple(map(class_name, sorted(ODD)))
    assert len(set(names)) == len(ODD)
    data.save(tmp_path / "d.safetensors")
    again = ll.load_features(tmp_path / "d.safetensors")
    assert again.names == data.names
    assert again.with_label(data.label).names == data.names  # never coded again
    assert fit(again, "mean").classes_.tolist() == sorted(ODD)


@pytest.mark.parametrize("head", ["slda", "linear"])
def test_a_table_its_import_and_its_shards_are_learned_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    """Also when training goes on through another door, and when something is forgotten."""
    monkeypatch.chdir(tmp_path)
    frame = table(ODD).assign(split=["train"] * 60 + ["test"] * 4)
    frame.to_parquet("birds.parquet")
    import_features("birds.parquet", label="species").save("birds.safetensors")
    z, y = rows(ODD)
    doors: dict[str, Callable[[Any], HeadClassifier]] = {
        "table": lambda clf: fit("birds.parquet", clf, label="species"),
        "import": lambda clf: fit("birds.safetensors", clf),
    }
    if head == "slda":
        Path("shards").mkdir()
        frame[:40].drop(columns="split").to_parquet("shards/0.parquet")
        import_features("birds.parquet", label="species").save("shards/1.safetensors")
        both = [Path("shards/0.parquet"), Path("shards/1.safetensors")]
        counts = fit(both, head, label="species").head_.class_counts
        assert counts is not None
        expected = pd.concat([frame[:40], frame[:60]])["species"].value_counts()
        assert counts.tolist() == [expected[label] for label in sorted(ODD)]
        again = {"label": "species", "learned": "again"}
        doors["shard"] = lambda clf: fit([Path("birds.parquet")], clf, **again)
        doors["our shard"] = lambda clf: fit([Path("birds.safetensors")], clf, learned="again")
        doors["arrays"] = lambda clf: (
            HeadClassifier("slda") if clf == "slda" else clf
        ).partial_fit(z[:60], y[:60])
    made = {door: learn(head) for door, learn in doors.items()}
    right = set()
    for door, clf in made.items():
        clf.save(f"{door}.safetensors")
        assert clf.classes_.tolist() == sorted(ODD), door
        right.add(predict(clf, "birds.parquet", rows="test", label="species")[1]["test"])
        right.add(predict(clf, "birds.safetensors", rows="test")[1]["test"])
    assert right == {1.0}
    for door in made:
        for then, learn in doors.items():
            if then == "arrays":
                continue
            clf = learn(f"{door}.safetensors")
            assert clf.classes_.tolist() == sorted(ODD), (door, then)
            if clf.head_.abilities.forgets:
                assert forget(clf, "birds.safetensors", only=class_name("owl\n"))[0] == 8
                assert (
                    forget(clf, "birds.parquet", label="species", only=class_name("owl\\n"))[0] == 8
                )


def test_names_are_typed_as_they_are_shown(tmp_path: Path) -> None:
    clf = HeadClassifier("mean").fit(*rows(ODD))
    for label in ODD:
        assert clf.labels_.called(class_name(label)) == label
    assert called(clf.head_, clf.head_.class_names.index("owl\n")) == r"'owl\n'"  # type: ignore[union-attr]


def test_names_of_a_features_file_of_0_2_are_its_labels(tmp_path: Path) -> None:
    r"""It wrote \rho for the label \rho and for a carriage return with ho, and learned that."""
    path = tmp_path / "d.safetensors"
    Features.from_arrays(*rows(["\\rho", "\\tau"]), test=0.5).save(path)
    tensors, metadata = read_tensors(path, "features")
    del metadata["name_code"]
    write_tensors(path, "features", tensors, metadata | {"names": {"y": ["\\rho", "\\tau"]}})
    assert ll.load_features(path).names["y"] == ("\\\\rho", "\\\\tau")
    assert fit(path, "mean").classes_.tolist() == ["\\rho", "\\tau"]
    assert fit([path], "mean").classes_.tolist() == ["\\rho", "\\tau"]


def test_what_is_given_by_hand_is_a_label_until_it_is_a_name() -> None:
    data = Features.from_arrays(*rows(["a", "b"]), test=0.5)
    by_hand = Features(data.train, data.test, {"y": ("a\n", "a\\n")})
    assert by_hand.names["y"] == (r"a\n", r"a\\n")
    assert Features(data.train, data.test, by_hand.names).names == by_hand.names
    assert all(type(name) is ClassName for name in by_hand.names["y"])


def test_a_label_that_no_file_can_hold_is_written_by_its_name() -> None:
    data = Features.from_arrays(*rows(["emu\ud800", "owl\n"]), test=0.5)
    clf = fit(data, "mean")
    assert clf.classes_.tolist() == ["emu\ud800", "owl\n"]
    answers, right = predict(clf, data, rows="test")
    assert set(answers["label"]) == {"emu\\ud800", "owl\n"}
    assert right == {"test": 1.0}


@pytest.mark.parametrize("other", [b"owl", 3, True])
def test_labels_of_two_types_are_refused(other: object) -> None:
    labels = np.array(["owl", other] * 4, dtype=object)
    with pytest.raises(LabelError, match=r"of one type, got text in row 0 and .* in row 1"):
        Features.from_arrays(np.eye(8), labels, test=0.5)
