"""The file of a head: its optional parts, and what is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from streams import H, assert_same_bits, blobs, every_head, snapshot, trained

from lastlayer import HeadClassifier
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import ArgumentError, FileFormatError, MergeError, OptionError
from lastlayer.heads import load_head, make_head
from lastlayer.heads.head_file import FORMAT


@every_head
def test_class_names_are_kept(name: str, preset: str, tmp_path: Path) -> None:
    head = trained(name, preset)
    assert head.class_names is None
    head.class_names = ["cat", "dog", "Möwe"]
    head.save(tmp_path / "head")
    assert load_head(tmp_path / "head").class_names == ["cat", "dog", "Möwe"]


def test_a_merge_matches_classes_by_name() -> None:
    one, other = trained("mean", "exact"), trained("mean", "exact")
    one.class_names = ["cat", "dog"]
    assert one.merge(other).class_names == other.merge(one).class_names == ["cat", "dog"]
    other.class_names = ["cat", "dog", "owl"]
    assert one.merge(other).class_names == ["cat", "dog", "owl"]
    other.class_names = ["owl", "cat", "fox"]
    with pytest.raises(MergeError, match="class 2 of the first head has none: set class_names"):
        one.merge(other)
    one.class_names = ["cat", "dog", "emu"]
    merged = one.merge(other)
    assert merged.class_names == ["cat", "dog", "emu", "owl", "fox"]
    counts = [*one.class_counts.tolist(), *other.class_counts[[0, 2]].tolist()]
    counts[0] += int(other.class_counts[1])
    assert merged.class_counts.tolist() == counts


def test_wrong_names_are_refused() -> None:
    head = make_head("mean", H)
    for wrong, error in (("cat", ArgumentError), ([1], ArgumentError), (["a", "a"], OptionError)):
        with pytest.raises(error, match="must be"):
            head.class_names = wrong
    assert head.class_names is None


def test_parts_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "head"
    trained("mean", "exact").save(path)
    state, document = read_tensors(path, "head")
    for part in ("anything", "Calibration"):
        write_tensors(path, "head", state, {**document, part: {}})
        with pytest.raises(FileFormatError, match=f"part '{part}'.*upgrade lastlayer"):
            load_head(path)
    write_tensors(path, "head", state, {k: v for k, v in document.items() if k != "format"})
    with pytest.raises(
        FileFormatError, match=r"head format None, but this version reads formats 2 to 3$"
    ):
        load_head(path)
    write_tensors(path, "head", state, {**document, "format": FORMAT + 1})
    with pytest.raises(FileFormatError, match=r"head format 4.*reads formats 2 to 3: upgrade"):
        load_head(path)


@pytest.mark.parametrize(
    "change", [{"head": 3}, {"settings": None}, {"head": "none"}, {"settings": {"in_features": 9}}]
)
def test_an_intact_file_that_holds_no_head_is_refused(
    change: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "head"
    trained("slda", "exact").save(path)
    state, document = read_tensors(path, "head")
    write_tensors(path, "head", state, {**document, **change})
    with pytest.raises(FileFormatError, match=r"name its head|does not hold a head"):
        load_head(path)


def test_the_spread_is_that_of_the_data_and_merges_and_forgets() -> None:
    z, y = blobs(n_per_class=40)
    z = z.double() + 1e4
    whole, left, right = (make_head("mean", H) for _ in range(3))
    whole.observe(z, y)
    expected = torch.stack([(z[y == c] - z[y == c].mean(dim=0)).square().sum() for c in range(3)])
    torch.testing.assert_close(whole.statistics.spread, expected, rtol=1e-9, atol=1e-9)
    left.observe(z[::2], y[::2])
    right.observe(z[1::2], y[1::2])
    merged = left.merge(right)
    torch.testing.assert_close(merged.statistics.spread, expected, rtol=1e-9, atol=1e-9)
    merged.forget(z[1::2], y[1::2])
    torch.testing.assert_close(
        merged.statistics.spread, left.statistics.spread, rtol=1e-9, atol=1e-9
    )


RECORDS: dict[str, Any] = {
    "watch": {"wealth": [1.0, 2.5]},
    "change": 7,
    "deltas": {"shop": [1, 2], "lab": ["a"]},
    "judged": {"accuracy": 0.9},
    "origin": ["12 shards of birds/"],
}


def test_records_belong_to_the_head(tmp_path: Path) -> None:
    head = trained("mean", "exact")
    assert head.records == {}
    head.records.update(RECORDS)
    head.save(tmp_path / "head")
    loaded, twin = load_head(tmp_path / "head"), copy.deepcopy(head)
    twin.records["change"] = 8
    assert loaded.records == head.records == RECORDS
    clf = HeadClassifier.load(tmp_path / "head")
    assert clf.head_.records == RECORDS
    clf.partial_fit([[0.0] * H], [0]).save(tmp_path / "again")
    assert HeadClassifier.load(tmp_path / "again").head_.records == RECORDS
    document = read_tensors(tmp_path / "head", "head")[1]
    assert set(document["needed"]) & set(RECORDS) == {"change", "deltas"}
    assert set(document["may_be_ignored"]) == {"watch", "judged", "origin"}


def test_a_merge_has_the_deltas_of_both_once() -> None:
    one, other = trained("mean", "exact"), trained("mean", "exact")
    one.records.update(RECORDS)
    other.records.update(deltas={"shop": [5], "park": [1]}, origin=["a table"])
    both = {"deltas": {"shop": [1, 2, 5], "lab": ["a"], "park": [1]}}
    assert one.merge(other).records == both | {"origin": ["12 shards of birds/", "a table"]}
    other.records["deltas"]["shop"].append(2)
    before = snapshot(one)
    with pytest.raises(MergeError, match="both heads contain delta 2 of store shop"):
        one.merge(other)
    assert_same_bits(snapshot(one), before)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ({"notes": 1}, OptionError),
        ({"change": -1}, OptionError),
        ({"change": True}, OptionError),
        ({"deltas": [1]}, OptionError),
        ({"deltas": {"shop": [1, 1]}}, OptionError),
        ({"deltas": {"shop": [1.5]}}, OptionError),
        ({"origin": "a table"}, OptionError),
        ({"watch": {"at": float("nan")}}, ArgumentError),
        ({"judged": {"by": object()}}, ArgumentError),
        (3, ArgumentError),
    ],
)
def test_records_that_no_file_holds_are_refused(
    records: Any, error: type[Exception], tmp_path: Path
) -> None:
    head = trained("mean", "exact")
    head.records = records
    with pytest.raises(error, match="records"):
        head.save(tmp_path / "head")
    assert not (tmp_path / "head").exists()


def test_what_may_be_ignored_is_and_what_is_needed_is_not(tmp_path: Path) -> None:
    path = tmp_path / "head"
    trained("mean", "exact").save(path)
    state, document = read_tensors(path, "head")
    later = {**document, "may_be_ignored": {"mood": "good"}}
    write_tensors(path, "head", state, later)
    load_head(path).save(path)
    assert "mood" not in read_tensors(path, "head")[1]["may_be_ignored"]
    write_tensors(path, "head", state, {**document, "needed": {"mood": "good"}})
    with pytest.raises(FileFormatError, match=r"part 'mood'.*upgrade lastlayer"):
        load_head(path)


def test_symmetric_statistics_take_half_the_space(tmp_path: Path) -> None:
    z = torch.randn(300, 40, generator=torch.Generator().manual_seed(0))
    for options, shape in (({}, (820,)), ({"per_class_scatter": True}, (3, 820))):
        head = make_head("slda", 40, **options)
        head.observe(z, torch.arange(300) % 3)
        head.save(tmp_path / "head")
        state = read_tensors(tmp_path / "head", "head")[0]
        assert state["statistics.scatter"].shape == shape
        assert_same_bits(snapshot(load_head(tmp_path / "head")), snapshot(head))


@pytest.mark.parametrize("packed", [["statistics.mean"], ["seen"], ["none"], [3], "scatter"])
def test_what_is_no_lower_triangle_is_refused(packed: Any, tmp_path: Path) -> None:
    path = tmp_path / "head"
    trained("mean", "exact").save(path)
    state, document = read_tensors(path, "head")
    state["statistics.mean"] = torch.zeros(3, 5, dtype=torch.float64)
    state["seen"] = torch.tensor(True)
    write_tensors(path, "head", state, {**document, "needed": {"packed": packed}})
    with pytest.raises(FileFormatError, match=r"lower triangle|stores its packed"):
        load_head(path)
