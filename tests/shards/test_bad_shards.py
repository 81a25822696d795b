"""A shard that is damaged, odd, empty or changing is named, and nothing is written for it."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import piles
import polars as pl
import pytest
from same import assert_same

import lastlayer as ll
from lastlayer.data import shard_rows
from lastlayer.errors import DataError, FileFormatError, LastLayerError
from lastlayer.evaluate import shard_tasks

Z, Y = piles.data()
TEST = piles.data(500, seed=7)[0]


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    file.write_bytes(bytes(content))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def other_width(file: Path) -> None:
    piles.frame(Z[:50, :7], list(Y[:50])).write_parquet(file)


def empty(file: Path) -> None:
    piles.frame(Z[:1], list(Y[:1])).clear().write_parquet(file)


def no_bytes(file: Path) -> None:
    file.write_bytes(b"")


def nan(file: Path) -> None:
    z = Z[:500].copy()
    z[431, 5] = np.nan
    piles.frame(z, list(Y[:500])).write_parquet(file, row_group_size=100)


def missing_label(file: Path) -> None:
    piles.frame(Z[:500], [*Y[:300], None, *Y[301:500]]).write_parquet(file)


def other_column(file: Path) -> None:
    piles.frame(Z[:500], list(Y[:500])).rename({"species": "kind"}).write_parquet(file)


def ragged(file: Path) -> None:
    vectors = [[0.0] * (piles.H + (row == 42)) for row in range(50)]
    pl.DataFrame({"z": vectors, "species": list(Y[:50])}).write_parquet(file)


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "damaged": (damage, "damaged"),
    "cut off": (cut, "damaged"),
    "of another width": (other_width, "features must have 12 columns, as in .*, got 7 in"),
    "empty": (empty, "has no rows"),
    "without bytes": (no_bytes, "damaged"),
    "with NaN": (nan, "NaN or infinity in row 431"),
    "without a label": (missing_label, "the first in row 300"),
    "without the column": (other_column, "unknown column 'species'"),
    "ragged": (
        ragged,
        "lists in 'z' must be of one length, got 12 numbers in row 0 and 13 in row 42",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_it_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    piles.parquet(tmp_path / "shards")
    spoil, said = BAD[kind]
    spoil(tmp_path / "shards" / "part-2.parquet")
    with pytest.raises(LastLayerError, match=said) as error:
        ll.fit(tmp_path / "shards", "slda", label="species")
    assert "part-2.parquet" in str(error.value)
    command = "fit shards --head slda --label species --out head.safetensors"
    assert piles.run(monkeypatch, command) == 1
    assert "part-2.parquet" in capsys.readouterr().err
    assert not Path("head.safetensors").exists()
    assert piles.run(monkeypatch, f"{command} --broken skip") == 0
    assert "left out 1: part-2.parquet" in capsys.readouterr().out
    assert piles.run(monkeypatch, "show head.safetensors") == 0
    shown = capsys.readouterr().out
    assert "left out 1: part-2.parquet" in shown
    assert str(tmp_path) not in shown
    (tmp_path / "shards" / "part-2.parquet").unlink()
    clf = ll.HeadClassifier.load("head.safetensors")
    assert_same(clf, ll.fit(tmp_path / "shards", "slda", label="species"), TEST)


@pytest.mark.parametrize("spoil", [damage, cut])
def test_features_of_ours(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = piles.ours(tmp_path / "shards")
    spoil(folder / "part-1.safetensors")
    with pytest.raises(FileFormatError, match=r"part-1.safetensors.* (altered|truncated)"):
        ll.fit(folder, "slda")
    skipped = ll.fit(folder, "slda", broken="skip")
    (folder / "part-1.safetensors").unlink()
    assert_same(skipped, ll.fit(folder, "slda"), TEST)


def test_the_first_rows_of_a_map_are_of_a_sound_shard(tmp_path: Path) -> None:
    folder = piles.ours(tmp_path / "shards", pieces=2)
    damage(folder / "part-0.safetensors")
    options = {"width": 40}
    skipped = ll.fit(folder, "random_ridge", broken="skip", options=options)
    with pytest.raises(FileFormatError, match=r"part-0.safetensors was altered"):
        ll.fit(folder, "random_ridge", options=options)
    (folder / "part-0.safetensors").unlink()
    assert_same(skipped, ll.fit(folder, "random_ridge", options=options), TEST)


@pytest.mark.parametrize("change", ["touched", "longer", "shorter", "gone"])
@pytest.mark.parametrize("make", ["parquet", "ours", "clip_retrieval"])
def test_it_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str, change: str
) -> None:
    """After its first piece was read, another program writes to it."""
    folder = getattr(piles, make)(tmp_path / "shards", pieces=2)
    file = sorted(
        path for path in folder.rglob("*-1*" if make != "clip_retrieval" else "img_emb_1*")
    )[0]
    before, changed = shard_rows.as_features, []
    rows = shard_rows._rows_of
    monkeypatch.setattr(shard_rows, "_rows_of", lambda width: min(rows(width), 100))

    def meanwhile(shard: shard_rows.Shard, *others: object) -> object:
        for number, piece in enumerate(original(shard, *others)):  # type: ignore[arg-type]
            yield piece
            if number == 0 and shard.path == str(file) and not changed:
                changed.append(change)
                _change(file, change)

    original = shard_tasks.read_shard
    monkeypatch.setattr("lastlayer.evaluate.shard_tasks.read_shard", meanwhile)
    assert before is shard_rows.as_features
    label = None if make == "ours" else "species"
    with pytest.raises(LastLayerError, match=file.name):
        ll.fit(folder, "mean", label=label)
    assert changed == [change]


def _change(file: Path, change: str) -> None:
    if change == "touched":
        os.utime(file, ns=(1, 1))
    elif change == "gone":
        file.unlink()
    else:
        content = file.read_bytes()
        with file.open("r+b") as there:  # in place, as a copy that goes on would
            there.truncate(len(content) // 4 if change == "shorter" else len(content) + 100)


def test_all_are_broken(tmp_path: Path) -> None:
    folder = piles.parquet(tmp_path / "shards", pieces=2)
    for file in folder.iterdir():
        cut(file)
    with pytest.raises(DataError, match="none of 2 shards can be read"):
        ll.fit(folder, "slda", label="species", broken="skip")


def test_a_classifier_stays_as_it_was(tmp_path: Path) -> None:
    folder = piles.parquet(tmp_path / "shards")
    clf = ll.fit(folder, "slda", label="species")
    before = clf.predict(TEST).tolist(), clf.origin_, clf.classes_.tolist()
    table = piles.frame(Z[:50], ["dodo"] * 50)
    table.write_parquet(folder / "part-4.parquet")
    nan(folder / "part-5.parquet")
    with pytest.raises(DataError, match="NaN"):
        ll.fit(folder, clf, label="species", learned="again")
    assert (clf.predict(TEST).tolist(), clf.origin_, clf.classes_.tolist()) == before


def test_no_shard_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = piles.parquet(tmp_path / "shards")
    for source in (folder, folder / "*.parquet"):
        out = folder / "part-1.parquet"
        command = f"fit {source} --head slda --label species --out {out} --force"
        assert piles.run(monkeypatch, command) == 1
        assert "--out would overwrite an input" in capsys.readouterr().err
    assert pl.read_parquet(folder / "part-1.parquet").height > 0


def narrow(file: Path) -> None:
    pl.read_parquet(file).with_columns(pl.col("z").list.head(2)).write_parquet(file)


def test_the_first_shard_does_not_decide_how_wide_features_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most of them do, or the head that learns them."""
    monkeypatch.chdir(tmp_path)
    whole = ll.fit(piles.parquet(tmp_path / "shards"), "slda", label="species")
    whole.save("head.safetensors")
    narrow(tmp_path / "shards" / "part-0.parquet")
    said = f"must have {piles.H} columns, as in .*part-1.parquet, got 2 in .*part-0.parquet"
    for head in ("slda", tmp_path / "head.safetensors"):
        with pytest.raises(DataError, match=said):
            ll.fit(tmp_path / "shards", head, label="species")
    command = "fit shards --head head.safetensors --label species --broken skip --learned again"
    assert piles.run(monkeypatch, command) == 0
    assert "left out 1: part-0.parquet (features must have" in capsys.readouterr().out
    for file in (tmp_path / "shards").glob("part-[1-9]*.parquet"):
        narrow(file)
    clf = ll.fit(tmp_path / "shards", "slda", label="species")
    assert clf.n_features_in_ == 2
    with pytest.raises(DataError, match=r"12 columns, as the head has learned, got 2 in .*part-0"):
        ll.fit(tmp_path / "shards", tmp_path / "head.safetensors", label="species")
