"""The results file: what is saved stays, what is not leaves no trace, and others are refused."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lastlayer.errors import (
    BusyError,
    FileFormatError,
    MissingFileError,
    UnknownNameError,
    WriteError,
)
from lastlayer.results import load_study, results_file
from lastlayer.results.blobs import pack, unpack
from lastlayer.results.store import FILE, Record, open_store

RUN = {
    "features": "mine", "scenario": "incremental:3", "label": "y", "head": "cosine",
    "mask": "single", "preset": "paper", "lr": 0.1, "order": 0, "seed": 0, "subset": None,
}  # fmt: skip
DONE = {"state": "done", "n_classes": 4, "n_tasks": 3, "epochs": 5, "final": 0.75}


@given(
    hnp.arrays(
        st.sampled_from([np.float32, np.float64, np.int32, np.int64]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0),
    )
)
def test_an_array_comes_back_as_it_was(array: np.ndarray) -> None:
    again = unpack(*pack(array))
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    curve = np.arange(6, dtype=np.int32).reshape(2, 3)
    with open_store(tmp_path / "new" / "folder") as store:
        about = {"names": {"y": ["a", "b"]}, "origin": {}, "n_train": 9, "n_test": 3}
        store.describe("a plan", {"mine": ("abc", about | {"in_features": 2})}, version="1")
        states = store.plan({"one": RUN, "two": RUN | {"order": 1}})
        assert states == {"one": (1, "planned"), "two": (1, "planned")}
        store.save([Record("one", DONE, {"right_by_class": curve})])
    study = load_study(tmp_path / "new" / "folder")
    assert study.about == {"plan": "a plan", "version": "1"}
    assert study.data["mine"].names == {"y": ["a", "b"]}
    assert study.data["mine"].fingerprint == "abc"
    assert study.runs["state"].to_list() == ["done", "planned"]
    assert repr(study).endswith("folder: 1 of 2 runs)")
    (row,) = study.done.iter_rows(named=True)
    assert row | RUN | DONE == row
    assert study.array_names() == ["right_by_class"]
    with pytest.raises(UnknownNameError, match="did you mean 'right_by_class'"):
        study.arrays("rigth_by_class")
    (array,) = study.arrays("right_by_class").values()
    np.testing.assert_array_equal(array, curve)
    assert study.arrays("right_by_class", study.runs.filter(state="planned")) == {}


def test_a_file_at_rest_is_one_file(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.plan({"one": RUN})
    assert not list(tmp_path.glob("*-wal"))


def test_another_plan_keeps_what_is_done_and_drops_what_is_not(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.plan({"one": RUN, "two": RUN, "failed": RUN})
        store.save([Record("one", DONE), Record("failed", {"state": "failed", "message": "no"})])
        states = store.plan({"one": RUN, "three": RUN, "failed": RUN})
        assert states == {"one": (1, "done"), "three": (2, "planned"), "failed": (1, "planned")}
        assert store.plan({"three": RUN}) == {"three": (2, "planned")}
    assert sorted(load_study(tmp_path).runs["digest"]) == ["one", "three"]


def test_what_is_saved_together_is_there_wholly_or_not_at_all(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.plan({"one": RUN, "two": RUN})
        with pytest.raises(sqlite3.IntegrityError):
            store.save([Record("one", DONE), Record("two", {"state": "unheard of"})])
    assert load_study(tmp_path).done.is_empty()


def test_a_second_writer_is_refused_or_waits(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(BusyError, match="--wait"), open_store(tmp_path):
        pass
    with open_store(tmp_path):  # the first has ended
        pass


def test_who_waits_goes_on_when_the_other_has_ended(tmp_path: Path) -> None:
    first, told = open_store(tmp_path), []
    first.__enter__()

    def end_the_first() -> None:
        told.append("waiting")
        first.__exit__(None, None, None)

    with open_store(tmp_path, wait=True, on_wait=end_the_first) as store:
        store.plan({"one": RUN})
    assert told == ["waiting"]


def test_results_are_read_while_they_are_written(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.plan({"one": RUN})
        store.save([Record("one", DONE)])
        assert load_study(tmp_path).done.height == 1


def test_a_file_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("CREATE TABLE run (x)")
    other.close()
    before = (tmp_path / FILE).read_bytes()
    for use in (load_study, lambda folder: open_store(folder).__enter__()):
        with pytest.raises(FileFormatError, match="another program"):
            use(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before
    (tmp_path / FILE).write_bytes(b"no database at all, but long enough to be looked at" * 9)
    with pytest.raises(FileFormatError, match="results file of lastlayer"):
        load_study(tmp_path)


def test_a_file_of_a_future_version_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path):
        pass
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute(f"PRAGMA user_version = {results_file.VERSION + 1}")
    file.close()
    with pytest.raises(FileFormatError, match="newer lastlayer"):
        load_study(tmp_path)


def test_tables_are_made_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = f"{results_file.SCHEMA} SELECT nonsense;"
    with monkeypatch.context() as patch:
        patch.setattr(results_file, "SCHEMA", wrong)
        with pytest.raises(WriteError, match="nonsense"), open_store(tmp_path):
            pass
    with open_store(tmp_path) as store:
        store.plan({"one": RUN})
    assert load_study(tmp_path).runs["digest"].to_list() == ["one"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WriteError, match="file"), open_store(tmp_path / "file" / "out"):
        pass


def test_a_damaged_file_is_said_to_be_so(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.plan({f"{n:064}": RUN for n in range(500)})
        arrays = {"norm": np.random.default_rng(0).random(3000)}
        store.save([Record(f"{n:064}", DONE, arrays) for n in range(20)])
    content = bytearray((tmp_path / FILE).read_bytes())
    content[8192:-4096] = bytes(len(content) - 12288)
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(FileFormatError, match="is damaged"):
        load_study(tmp_path)
    with pytest.raises(FileFormatError, match="is damaged"), open_store(tmp_path) as store:
        store.plan({"one": RUN})


def test_no_results_and_an_empty_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="lastlayer run"):
        load_study(tmp_path)
    (tmp_path / FILE).touch()
    with pytest.raises(FileFormatError, match="empty"):
        load_study(tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_after_an_error_the_same_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise error

    with open_store(tmp_path) as store:
        store.plan({"one": RUN, "two": RUN | {"order": 1}})
        with monkeypatch.context() as patch:
            patch.setattr("lastlayer.results.store.seal", fail)
            with pytest.raises(error):
                store.save([Record("one", DONE, {})])
        store.save([Record("two", DONE, {})])
    assert load_study(tmp_path).runs["state"].to_list() == ["planned", "done"]
