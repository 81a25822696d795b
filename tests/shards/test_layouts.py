"""Shards in every layout give the head that one file gives."""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import piles
import polars as pl
import pyarrow as pa
import pytest
from same import assert_same

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.data.shard_list import is_sharded, list_shards
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import (
    MissingFileError,
    MissingPackageError,
    NotCalibratedError,
    OptionError,
    UnsupportedError,
)
from lastlayer.estimator.fit_shards import fit_shards
from lastlayer.evaluate.shard_tasks import run_in_threads

Z, Y = piles.data()
TEST = piles.data(500, seed=7)[0]
SMALL = {"random_ridge": {"width": 50}, "random_slda": {"width": 50}}
SMALL |= {"sampled_linear": {"steps": 3}}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    piles.frame(Z, list(Y)).write_parquet(tmp_path / "whole.parquet")
    return tmp_path / "whole.parquet"


def names(shards: list[object]) -> list[str]:
    return [Path(shard.path).name for shard in shards]  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", ["parquet", "ours", "clip_retrieval", "csv"])
def test_every_layout(tmp_path: Path, whole: Path, make: str) -> None:
    folder = getattr(piles, make)(tmp_path / "shards")
    label = None if make == "ours" else "species"
    made = ll.fit(folder, "slda", label=label)
    assert_same(made, ll.fit(whole, "slda", label="species"), TEST)


def test_tensors_of_another_program(tmp_path: Path) -> None:
    clf = ll.fit(piles.tensors(tmp_path / "shards"), "slda")
    numbers = [piles.SPECIES.index(name) for name in Y]
    assert_same(clf, ll.fit(ll.Features.from_arrays(Z, numbers, test=(Z, numbers)), "slda"), TEST)


@pytest.mark.parametrize("name", [name for name, card in HEADS.items() if card.abilities.merges])
def test_every_head_that_merges(tmp_path: Path, whole: Path, name: str) -> None:
    folder = piles.parquet(tmp_path / "shards", pieces=7)
    options = SMALL.get(name)
    with piles.cut(1):
        made = fit_shards(
            folder,
            ll.HeadClassifier(name, options=options, random_state=0),
            Selection(label="species"),
            run=partial(run_in_threads, threads=1),
        )
    expected = ll.fit(whole, name, label="species", options=options)
    if name in ("knn", "median"):  # they keep rows, in their order
        assert made.predict(TEST).tolist() == expected.predict(TEST).tolist()
    else:
        assert_same(made, expected, TEST)


@pytest.mark.parametrize("name", ["slda", "random_ridge"])
def test_any_grouping_and_any_order(tmp_path: Path, whole: Path, name: str) -> None:
    """The map of a random head is that of the first rows listed, so the first shard stays first."""
    folder = piles.parquet(tmp_path / "shards", pieces=20)
    files = sorted(folder.glob("*"), key=lambda file: int(file.stem[5:]))
    clf = ll.fit(whole, name, label="species", options=SMALL.get(name))
    first, others = files[:11], files[11:]  # more than 1,000 rows
    assert sum(pl.read_parquet(file).height for file in first) > 1000
    for order in (others, others[::-1]):
        for group_bytes in (1, 30_000, 100_000, 1 << 30):
            with piles.cut(group_bytes):
                made = fit_shards(
                    [*first, *order],
                    ll.HeadClassifier(name, options=SMALL.get(name), random_state=0),
                    Selection(label="species"),
                    run=partial(run_in_threads, threads=1),
                )
            assert_same(made, clf, TEST)


def test_fewer_rows_than_a_map_waits_for(tmp_path: Path) -> None:
    table = piles.frame(Z[:900], list(Y[:900]))
    table[:400].write_parquet(tmp_path / "a-0.parquet")
    table[400:].write_parquet(tmp_path / "a-1.parquet")
    table.write_parquet(tmp_path / "whole.parquet")
    options = {"width": 50}
    with piles.cut(1):
        made = fit_shards(
            str(tmp_path / "a-*.parquet"),
            ll.HeadClassifier("random_slda", options=options, random_state=0),
            Selection(label="species"),
            run=partial(run_in_threads, threads=1),
        )
    expected = ll.fit(tmp_path / "whole.parquet", "random_slda", label="species", options=options)
    assert made.predict(TEST).tolist() == expected.predict(TEST).tolist()
    more = piles.frame(Z[900:1500], list(Y[900:1500]))
    more.write_parquet(tmp_path / "b-0.parquet")
    ll.fit([tmp_path / "b-0.parquet"], made, label="species")  # the map is fixed on the way
    ll.fit(tmp_path / "b-0.parquet", expected, label="species")
    assert_same(made, expected, TEST)


@pytest.mark.parametrize("threads", [2, 5])
def test_in_several_threads(threads: int, tmp_path: Path, whole: Path) -> None:
    folder = piles.parquet(tmp_path / "shards", pieces=5)
    told: list[tuple[int, int]] = []
    with piles.cut(1):
        made = fit_shards(
            folder,
            ll.HeadClassifier("slda", random_state=0),
            Selection(label="species"),
            run=partial(run_in_threads, threads=threads),
            progress=lambda done, total: told.append((done, total)),
        )
    assert_same(made, ll.fit(whole, "slda", label="species"), TEST)
    assert told[0] == (0, piles.N)
    assert told[-1] == (piles.N, piles.N)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_going_on_with_new_classes(tmp_path: Path, whole: Path) -> None:
    old = np.isin(Y, ["owl", "emu"])
    piles.frame(Z[old], list(Y[old])).write_parquet(tmp_path / "old.parquet")
    for part, rows in enumerate(piles.cuts(int((~old).sum()), 3)):
        table = piles.frame(Z[~old][rows], list(Y[~old][rows]))
        table.write_parquet(tmp_path / f"new-{part}.parquet")
    clf = ll.fit(tmp_path / "old.parquet", "slda", label="species")
    ll.fit(str(tmp_path / "new-*.parquet"), clf, label="species")
    assert clf.origin_ == [
        f"learned {int(old.sum())} rows of old.parquet",
        f"learned {int((~old).sum())} rows of 3 shards",
    ]
    assert clf.head_.class_names == ["emu", "owl", "auk", "ibis", "kiwi"]
    again = ll.fit(whole, "slda", label="species")
    assert clf.predict(TEST).tolist() == again.predict(TEST).tolist()
    clf.save(tmp_path / "head.safetensors")
    loaded = ll.HeadClassifier.load(tmp_path / "head.safetensors")
    assert loaded.origin_ == clf.origin_
    assert loaded.predict(TEST).tolist() == clf.predict(TEST).tolist()


def test_splits_by_the_names_of_files(tmp_path: Path) -> None:
    """As the Hub keeps them."""
    for word, rows in (("train", slice(0, 100)), ("test", slice(100, 150))):
        for part in range(2):
            table = piles.frame(Z[rows][part::2], list(Y[rows][part::2]))
            (tmp_path / "data").mkdir(exist_ok=True)
            table.write_parquet(tmp_path / "data" / f"{word}-0000{part}-of-00002.parquet")
    counted = {}
    for rows in ("train", "test", "all"):
        counts = ll.fit(tmp_path, "mean", label="species", rows=rows).head_.class_counts
        counted[rows] = int(counts.sum())  # type: ignore[union-attr]
    assert counted == {"train": 100, "test": 50, "all": 150}
    with pytest.raises(OptionError, match="no rows of 'validation', only of: test, tr"):
        ll.fit(tmp_path, "mean", label="species", rows="validation")


def test_a_split_column_may_be_of_one_kind_in_a_shard(tmp_path: Path) -> None:
    for part, words in enumerate((["train"] * 10, ["Train", "test"] * 5, ["test"] * 10)):
        table = piles.frame(Z[:10], list(Y[:10])).with_columns(pl.Series("split", words))
        table.write_parquet(tmp_path / f"{part}.parquet")
    assert counts(ll.fit(tmp_path, "mean", label="species")) == 15
    assert counts(ll.fit(tmp_path, "mean", label="species", rows="all")) == 30


def counts(clf: ll.HeadClassifier) -> int:
    found = clf.head_.class_counts
    assert found is not None
    return int(found.sum())


def test_a_folder_of_datasets(tmp_path: Path) -> None:
    """Arrow streams with the names of classes beside them, in many record batches."""
    codes = [piles.SPECIES.index(name) for name in Y]
    for part, rows in enumerate(piles.cuts(piles.N, 3)):
        vectors = pa.array([row.tolist() for row in Z[rows]], pa.list_(pa.float32()))
        table = pa.table({"z": vectors, "species": pa.array(codes[rows], pa.int64())})
        with pa.ipc.new_stream(str(tmp_path / f"data-{part}.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    files = [{"filename": f"data-{part}.arrow"} for part in range(3)]
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": files}))
    about = {"features": {"species": {"names": list(piles.SPECIES), "_type": "ClassLabel"}}}
    (tmp_path / "dataset_info.json").write_text(json.dumps(about))
    clf = ll.fit(tmp_path, "slda", label="species")
    assert clf.origin_ == ["learned 3000 rows of 3 shards"]
    piles.frame(Z, list(Y)).write_parquet(tmp_path.parent / "whole.parquet")
    assert_same(clf, ll.fit(tmp_path.parent / "whole.parquet", "slda", label="species"), TEST)
    linear = ll.fit(tmp_path, "linear", label="species", epochs=1)  # read whole, as it always was
    assert linear.score(Z, Y) > 0.5


LABELS = {
    "whole": ([[3, 10], [2, 3]], ["2", "3", "10"]),
    "with a point": ([[3.0, 10.0], [2.0, 3.0]], ["2", "3", "10"]),
    "fractions": ([[3.0, 0.5], [0.5, 0.25]], ["0.25", "0.5", "3.0"]),
    "text": ([["3", "10"], ["2", "3"]], ["10", "2", "3"]),
    "both": ([[3, 10], ["x", "3"]], ["10", "3", "x"]),
    "truth": ([[True, False], [True, True]], ["false", "true"]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_type(tmp_path: Path, kind: str) -> None:
    given, expected = LABELS[kind]
    for part, labels in enumerate(given):
        piles.frame(Z[:2], labels).write_parquet(tmp_path / f"{part}.parquet")
    clf = ll.fit(tmp_path, "mean", label="species")
    assert clf.head_.class_names == expected


def test_a_name_that_a_file_has_is_no_pattern(tmp_path: Path) -> None:
    for name in ("a[1].parquet", "a1.parquet"):
        piles.frame(Z[:5], list(Y[:5])).write_parquet(tmp_path / name)
    assert not is_sharded(tmp_path / "a[1].parquet")
    assert names(list_shards(tmp_path / "a[1].parquet")) == ["a[1].parquet"]  # type: ignore[arg-type]
    assert names(list_shards(tmp_path / "a[12].parquet")) == ["a1.parquet"]  # type: ignore[arg-type]
    assert names(list_shards(tmp_path / "a?*.parquet")) == ["a1.parquet", "a[1].parquet"]  # type: ignore[arg-type]
    assert not is_sharded("cifar10")


def test_numbers_in_names_are_sorted_as_numbers(tmp_path: Path) -> None:
    for name in ("part-10", "part-9", "part-1", ".hidden", "_SUCCESS"):
        piles.frame(Z[:5], list(Y[:5])).write_parquet(tmp_path / f"{name}.parquet")
    found = names(list_shards(tmp_path))  # type: ignore[arg-type]
    assert found == ["part-1.parquet", "part-9.parquet", "part-10.parquet"]


def test_what_cannot_be_meant(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"no file matches"):
        ll.fit(tmp_path / "*.parquet", "slda")
    with pytest.raises(MissingFileError, match=r"to mean a bracket, write \[\[\]$"):
        ll.fit(tmp_path / "[x]" / "*.parquet", "slda")
    with pytest.raises(OptionError, match="give at least one shard, got an empty list"):
        ll.fit([], "slda")
    with pytest.raises(MissingFileError, match="has no shards"):
        ll.fit(tmp_path, "slda")
    piles.frame(Z[:5], list(Y[:5])).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(OptionError, match="each shard must be given once"):
        ll.fit([tmp_path / "a.parquet", tmp_path / "a.parquet"], "slda", label="species")
    with pytest.raises(UnsupportedError, match="cannot be learned in parts"):
        ll.fit(tmp_path, "linear", label="species")
    (tmp_path / "b.csv").write_text("z,y\n1,2\n")
    with pytest.raises(OptionError, match=r"shards must be of one type, got .csv, .parquet"):
        ll.fit(tmp_path, "slda")
    with pytest.raises(OptionError, match="are for shards: a folder, a pattern"):
        ll.fit("cifar10", "slda", ray="local")


def test_embeddings_without_labels(tmp_path: Path) -> None:
    folder = piles.clip_retrieval(tmp_path / "clip", pieces=3)
    for meant in (folder / "img_emb", folder / "img_emb" / "*.npy"):
        with pytest.raises(OptionError, match=r"give .*clip, the folder that has metadata, too"):
            ll.fit(meant, "slda")
    (folder / "metadata" / "metadata_1.parquet").unlink()
    with pytest.raises(MissingFileError, match="got 2 for 3; unpaired: number 1"):
        ll.fit(folder, "slda", label="species")
    with pytest.raises(OptionError, match="--embedding must be img_emb, got 'text_emb'"):
        ll.fit(folder, "slda", label="species", embedding="text_emb")
    np.save(tmp_path / "alone-0.npy", Z)
    np.save(tmp_path / "alone-1.npy", Z)
    with pytest.raises(OptionError, match="has no labels"):
        ll.fit(str(tmp_path / "alone-*.npy"), "slda")


def test_heads_that_cannot_be_merged_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no table")
    refused: list[tuple[str, dict[str, object]]] = [
        ("cosine+single", {}),
        ("slda", {"preset": "paper"}),
        ("slda", {"options": {"half_life": 100}}),
        ("knn", {"options": {"budget": 100}}),
    ]
    for name, settings in refused:
        with pytest.raises(UnsupportedError, match="cannot be learned in parts"):
            ll.fit(tmp_path, name, **settings)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="has no option 'widht'"):
        ll.fit(tmp_path, "random_ridge", options={"widht": 7})


def test_a_head_that_was_calibrated_goes_on(tmp_path: Path) -> None:
    """Rows of shards are not held out; a calibration is out of date, as after any learning."""
    folder = piles.parquet(tmp_path / "shards")
    with pytest.raises(OptionError, match="calibrate the head afterwards"):
        ll.fit(folder, "slda", label="species", calibration=0.1)
    clf = ll.fit(folder, "slda", label="species")
    clf.calibrate(TEST, piles.data(500, seed=7)[1])
    clf.predict_or_unknown(TEST[:3])
    ll.fit(folder, clf, label="species", learned="again")
    with pytest.raises(NotCalibratedError):
        clf.predict_or_unknown(TEST[:3])


def test_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"extra 'ray'.*pip install '\.\[ray\]'"):
        ll.fit(piles.parquet(tmp_path), "slda", label="species", ray="local")
