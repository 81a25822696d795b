"""The file of a head: its optional parts, and what is refused."""

from pathlib import Path

import pytest
import torch
from streams import H, blobs, every_head, trained

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
        FileFormatError, match=r"head format None, but this version reads format 2$"
    ):
        load_head(path)
    write_tensors(path, "head", state, {**document, "format": FORMAT + 1})
    with pytest.raises(FileFormatError, match=r"head format 3.*reads format 2: upgrade"):
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
