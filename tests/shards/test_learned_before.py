"""A head knows the shards that it has learned: it learns none twice unless it is told to."""

import os
from functools import partial
from pathlib import Path

import piles
import pytest

import lastlayer as ll
from lastlayer.data.shard_list import SAMPLE, SAMPLES, Shard
from lastlayer.errors import DataError, MergeError, OptionError

COMMAND = "fit {} --head {} --label species"
fit = partial(ll.fit, label="species")


def rows_of(clf: ll.HeadClassifier) -> int:
    assert clf.head_.class_counts is not None
    return int(clf.head_.class_counts.sum())


def test_a_rerun_learns_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards, head = piles.parquet(tmp_path / "shards"), tmp_path / "head"
    first, last = sorted(shards.glob("*"))[:-1], sorted(shards.glob("*"))[-1]
    fit(first, "slda").save(head)
    before = head.read_bytes()
    clf = ll.HeadClassifier.load(head)
    n = rows_of(clf)
    with pytest.raises(DataError, match=r"3 of 4 shards were learned before.* and 2 more\): lear"):
        fit(shards, clf)
    # By another name and time it is the same shard.
    moved = first[0].rename(shards / "another.parquet")
    os.utime(moved, (0, 0))
    assert piles.run(monkeypatch, COMMAND.format(shards, head)) == 1
    assert head.read_bytes() == before
    assert piles.run(monkeypatch, COMMAND.format(shards, head) + " --learned skip") == 0
    both = ll.HeadClassifier.load(head)
    assert rows_of(both) == piles.N
    assert both.origin_[-1] == f"learned {piles.N - n} rows of 1 shard"
    assert piles.run(monkeypatch, COMMAND.format(shards, head) + " --learned skip") == 0
    assert rows_of(ll.HeadClassifier.load(head)) == piles.N
    fit([last], clf, learned="again")
    assert rows_of(fit([last], clf, learned="again")) == n + 2 * (piles.N - n)


def test_other_rows_of_a_file_are_other_rows(tmp_path: Path) -> None:
    z, y = piles.data()
    files = []
    for part in range(2):
        data = ll.Features.from_arrays(z[part::2], list(y[part::2]), test=0.2)
        data.save(tmp_path / f"{part}.safetensors")
        files.append(tmp_path / f"{part}.safetensors")
    clf = ll.fit(files, "slda")
    ll.fit(files, clf, rows="test")
    assert rows_of(clf) == len(z)
    for rows in ("test", "all"):
        with pytest.raises(DataError, match="2 of 2 shards were learned before"):
            ll.fit(files, clf, rows=rows)


def test_a_shard_counts_once_in_a_merged_head(tmp_path: Path) -> None:
    shards = sorted(piles.parquet(tmp_path / "shards").glob("*"))
    left, right = fit(shards[:2], "slda"), fit(shards[2:], "slda")
    merged = left.merge(right)
    assert len(merged.head_.records["shards"]) == 4
    with pytest.raises(DataError, match="1 of 1 shards were learned before"):
        fit(shards[3:], merged)
    with pytest.raises(MergeError, match="both heads have learned 2 of the same shards"):
        merged.merge(right)


def test_what_was_forgotten_whole_is_learned_again(tmp_path: Path) -> None:
    shards = piles.parquet(tmp_path / "shards")
    clf = fit(shards, "slda")
    clf.forget(*piles.data())
    assert rows_of(fit(shards, clf)) == piles.N


def test_the_choice_is_checked(tmp_path: Path) -> None:
    shards = piles.parquet(tmp_path / "shards")
    with pytest.raises(OptionError, match="learned must be 'stop' or 'skip' or 'again'"):
        fit(shards, "slda", learned="twice")
    with pytest.raises(OptionError, match="learned are for shards"):
        ll.fit("cifar10", "slda", learned="skip")


def test_a_print_follows_from_bytes_at_both_ends_and_between(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    content = bytearray(3 * SAMPLES * SAMPLE)
    prints = set()
    middle = (len(content) - SAMPLE) * 7 // (SAMPLES - 1)
    for place in (0, middle, len(content) - 1):
        content[place] ^= 1
        path.write_bytes(content)
        prints.add(Shard.of(path).print_of(""))
    path.write_bytes(content + b"\0")
    assert Shard.of(path).print_of("") not in prints
    assert len(prints) == 3
    assert Shard.of(path).print_of("test").endswith(" test")
