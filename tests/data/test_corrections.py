"""What an audit suggests, applied: to features, to rows, and by ``fit``."""

from pathlib import Path

import polars as pl
import pytest
import torch

import lastlayer as ll
from lastlayer.cli.out import write_table
from lastlayer.errors import DataError, LastLayerError, OptionError

SUSPECTS = pl.DataFrame({"row": [3, 0], "label": ["dog", "cat"], "suggestion": ["cat", "emu"]})


def features() -> ll.Features:
    z = torch.arange(12.0).reshape(6, 2)
    y = ["cat", "dog", "cat", "dog", "cat", "dog"]
    return ll.Features.from_arrays(z, y, test=(z, y), session=[0, 0, 1, 1, 2, 2])


def test_suspects_are_left_out() -> None:
    data = features()
    left = data.drop(SUSPECTS)
    assert left.train.z[:, 0].tolist() == [2, 4, 8, 10]
    assert left.train.labels["session"].tolist() == [0, 1, 2, 2]
    assert len(left.test) == len(data.test) == 6
    assert len(data.train) == 6
    assert left.fingerprint != data.fingerprint


def test_suspects_take_the_suggested_labels_new_ones_too() -> None:
    data = features()
    better = data.relabel(SUSPECTS)
    names = better.names["y"]
    assert [names[c] for c in better.train.y] == ["emu", "dog", "cat", "cat", "cat", "dog"]
    assert names[:2] == data.names["y"]
    assert data.train.y.tolist() == [0, 1, 0, 1, 0, 1]


def test_a_file_is_as_good_as_a_table(tmp_path: Path) -> None:
    for file in (tmp_path / "s.csv", tmp_path / "s.parquet"):
        SUSPECTS.write_csv(file) if file.suffix == ".csv" else SUSPECTS.write_parquet(file)
        assert torch.equal(features().drop(file).train.z, features().drop(SUSPECTS).train.z)


def test_labels_that_are_numbers_stay_what_they_are(tmp_path: Path) -> None:
    z = torch.arange(8.0).reshape(4, 2)
    data = ll.Features.from_arrays(z, [7, 8, 7, 8], test=(z, [7, 8, 7, 8]))
    table = pl.DataFrame({"row": [1], "label": ["8"], "suggestion": ["7"]})
    table.write_csv(tmp_path / "s.csv")
    for suspects in (table, tmp_path / "s.csv"):
        assert data.relabel(suspects).train.y.tolist() == [0, 0, 0, 1]


def test_labels_that_would_begin_a_formula_come_back(tmp_path: Path) -> None:
    """A .csv file has them with an apostrophe."""
    z = torch.arange(8.0).reshape(4, 2)
    data = ll.Features.from_arrays(z, ["=a", "+b", "=a", "'c"], test=(z[:1], ["=a"]))
    table = pl.DataFrame({
        "row": [0, 1, 3], "label": ["=a", "+b", "'c"], "suggestion": ["'c", "=a", "+b"],
    })  # fmt: skip
    write_table(table, tmp_path / "s.csv")
    assert "'=a" in (tmp_path / "s.csv").read_text()
    for suspects in (table, tmp_path / "s.csv"):
        better = data.relabel(suspects)
        assert [better.names["y"][c] for c in better.train.y] == ["'c", "=a", "=a", "+b"]
        assert better.names == data.names
        assert data.drop(suspects).train.z[:, 0].tolist() == [4]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_no_suspects_change_nothing(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"s.{suffix}"
    write_table(SUSPECTS.clear(), file)
    data = features()
    assert torch.equal(data.drop(file).train.z, data.train.z)
    assert torch.equal(data.relabel(file).train.y, data.train.y)


def test_fit_learns_without_them() -> None:
    data = features()
    clf = ll.fit(data, "mean", drop=SUSPECTS)
    expected = ll.fit(data.drop(SUSPECTS), "mean")
    assert torch.equal(clf.head_.statistics.mean, expected.head_.statistics.mean)
    clf = ll.fit(data, "mean", relabel=SUSPECTS)
    assert clf.classes_.tolist() == ["cat", "dog", "emu"]
    assert clf.head_.class_counts.tolist() == [3, 2, 1]
    both = ll.fit(data, "mean", relabel=SUSPECTS.head(1), drop=SUSPECTS.tail(1))
    assert both.head_.class_counts.tolist() == [3, 2]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"row": [3, 3]}, "each row once"),
        ({"row": [3, 6]}, "rows 0 to 5"),
        ({"row": [3, -1]}, "rows 0 to 5"),
        ({"row": ["a", "b"]}, "whole numbers"),
        ({"row": [3, None]}, "whole numbers"),
        ({"label": ["dog", "dog"]}, r"row 0 \(counted from 0\) is 'cat' here"),
        ({"suggestion": ["cat", None]}, "row 0 has none"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, list[object]], says: str) -> None:
    table = SUSPECTS.with_columns(**{name: pl.Series(values) for name, values in change.items()})
    with pytest.raises(LastLayerError, match=says):
        features().relabel(table)


def test_a_table_of_something_else_is_refused() -> None:
    with pytest.raises(DataError, match="lack suggestion"):
        features().drop(SUSPECTS.drop("suggestion"))
    everything = pl.DataFrame({"row": range(6), "label": ["cat", "dog"] * 3, "suggestion": "x"})
    with pytest.raises(DataError, match="nothing would be left"):
        features().drop(everything)
    with pytest.raises(OptionError, match="one split"):
        ll.fit(features(), "mean", rows="all", drop=SUSPECTS)
