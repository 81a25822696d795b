"""What a results file may hold: nothing that was altered is believed, and nothing in it runs."""

import json
import os
import shutil
import signal
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from test_store import DONE, RUN

from lastlayer.errors import BusyError, FileFormatError, LastLayerError
from lastlayer.results import load_study, results_file
from lastlayer.results.blobs import MOST, digest, pack
from lastlayer.results.store import FILE, Record, open_store, seal

ABOUT = {"names": {"y": ["a", "b"]}, "origin": {}, "n_train": 9, "n_test": 3, "in_features": 2}
CURVE = np.arange(60, dtype=np.int32).reshape(6, 10)


def keep(folder: Path) -> Path:
    """Write a study of two finished runs, one that failed and one that is planned."""
    with open_store(folder) as store:
        store.describe("a plan", {"mine": ("abc", ABOUT)}, version="1")
        what = RUN | {"fingerprint": "abc"}
        store.plan(dict.fromkeys(("one", "two", "failed", "planned"), what))
        arrays = {"right_by_class": CURVE, "norm": np.ones(3)}
        store.save([Record(name, DONE, arrays) for name in ("one", "two")])
        store.save([Record("failed", {"state": "failed", "message": "no"})])
    return folder


def change(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as file:
        file.executescript(script)


def read_all(folder: Path) -> None:
    study = load_study(folder)
    for name in (*study.array_names(), "right_by_class", "norm"):
        study.arrays(name)


def write(folder: Path) -> None:
    with open_store(folder) as store:
        store.plan({"one": RUN, "three": RUN})


def test_what_was_written_is_believed(tmp_path: Path) -> None:
    read_all(keep(tmp_path))
    write(tmp_path)  # a failed run is planned again, one is new, and all are sealed again
    read_all(tmp_path)


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE run SET final = 0.919 WHERE digest = 'one'",
        "UPDATE run SET final = NULL WHERE digest = 'one'",
        "UPDATE run SET head = 'slda' WHERE digest = 'planned'",
        "UPDATE run SET message = 'yes' WHERE digest = 'failed'",
        "UPDATE run SET state = 'planned' WHERE digest = 'one'",
        "UPDATE run SET digest = 'uno' WHERE digest = 'one'",
        "UPDATE run SET kind = 'network' WHERE digest = 'one'",
        "UPDATE run SET balance = 0.5 WHERE digest = 'one'",
        "UPDATE run SET checksum = NULL WHERE digest = 'one'",
        "UPDATE run SET final = CAST('0.75' AS BLOB) WHERE digest = 'one'",
        "UPDATE run SET arrays = '{}' WHERE digest = 'one'",
        "UPDATE run SET fingerprint = 'abd' WHERE digest = 'one'",
    ],
)
def test_an_altered_run_is_found_out(tmp_path: Path, script: str) -> None:
    change(keep(tmp_path), script)
    for use in (load_study, write):
        with pytest.raises(FileFormatError, match="altered after it was written: the checksum of"):
            use(tmp_path)


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE array SET content = (SELECT content FROM array WHERE name = 'norm')",
        "UPDATE array SET shape = '[10, 6]' WHERE name = 'right_by_class'",
        "UPDATE array SET type = '<f4' WHERE name = 'right_by_class'",
        "UPDATE array SET name = 'bias' WHERE name = 'norm'",
        "DELETE FROM array WHERE name = 'norm'",
        "UPDATE array SET run = 5 - run",
        "UPDATE data SET fingerprint = 'abd'",
        "UPDATE data SET about = replace(about, 'a', 'b')",
    ],
)
def test_altered_arrays_and_data_are_found_out(tmp_path: Path, script: str) -> None:
    change(keep(tmp_path), script)
    with pytest.raises(FileFormatError, match="altered after it was written: the checksum of"):
        read_all(tmp_path)


def test_no_flipped_bit_of_an_accuracy_goes_unnoticed(tmp_path: Path) -> None:
    content = (keep(tmp_path) / FILE).read_bytes()
    stored = np.array(DONE["final"], dtype=">f8").tobytes()
    places = [at for at in range(len(content) - 8) if content[at : at + 8] == stored]
    assert len(places) == 2
    for bit in range(64):
        flipped = bytearray(content)
        flipped[places[0] + bit // 8] ^= 1 << bit % 8
        (tmp_path / FILE).write_bytes(flipped)
        with pytest.raises(FileFormatError, match="altered"):
            load_study(tmp_path)


@pytest.mark.parametrize("name", [b"one", b"norm"])
def test_a_damaged_index_hides_nothing(tmp_path: Path, name: bytes) -> None:
    """Names of runs and of arrays lie in rows, which have checksums, and again in indices."""
    content = (keep(tmp_path) / FILE).read_bytes()
    study = load_study(tmp_path)
    expected = study.array_names(), {d: a.tolist() for d, a in study.arrays("norm").items()}
    places = [at for at in range(len(content)) if content[at : at + len(name)] == name]
    assert len(places) > 1
    for place in places:
        damaged = bytearray(content)
        damaged[place + 1] ^= 1
        (tmp_path / FILE).write_bytes(damaged)
        try:
            study = load_study(tmp_path)
            found = study.array_names(), {d: a.tolist() for d, a in study.arrays("norm").items()}
        except LastLayerError:
            continue
        assert found == expected


STRANGERS = [
    "CREATE TRIGGER better AFTER UPDATE ON run BEGIN UPDATE run SET final = 1; END",
    "CREATE VIEW more AS SELECT * FROM run",
    "CREATE TABLE more (x)",
    "CREATE INDEX more ON run (head)",
    "ALTER TABLE run ADD COLUMN more TEXT",
    "ALTER TABLE run ADD COLUMN more TEXT GENERATED ALWAYS AS (head) VIRTUAL",
    "ALTER TABLE run DROP COLUMN message",
    "CREATE VIRTUAL TABLE more USING fts5(x)",
    """DROP TABLE study; CREATE VIEW study AS WITH RECURSIVE n(x) AS
       (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) AS name, 1 AS value FROM n""",
]


@pytest.mark.parametrize("script", STRANGERS)
def test_what_is_not_ours_is_refused_before_anything_runs(tmp_path: Path, script: str) -> None:
    change(keep(tmp_path), script)
    before = (tmp_path / FILE).read_bytes()
    for use in (load_study, write):
        with pytest.raises(FileFormatError, match="altered by another program: it "):
            use(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


@pytest.fixture(name="study")
def _study(tmp_path: Path) -> Path:
    return keep(tmp_path)


def reseal(folder: Path) -> None:
    """Make all checksums anew, as someone can who wants to deceive."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as file:
        cursor = file.cursor()
        for (run,) in cursor.execute("SELECT DISTINCT run FROM array").fetchall():
            query = "SELECT name, type, shape, content FROM array WHERE run = ?"
            rows = cursor.execute(query, (run,)).fetchall()
            arrays = json.dumps({name: digest(tuple(packed)) for name, *packed in rows})
            cursor.execute("UPDATE run SET arrays = ? WHERE id = ?", (arrays, run))
        cursor.execute("UPDATE run SET checksum = NULL")
        seal(cursor, "run", "id", "WHERE checksum IS NULL")
        seal(cursor, "data", "name")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("UPDATE run SET final = 'much'", "column 'final' holds str"),
        ("UPDATE run SET seed = 0.5", "column 'seed' holds float"),
        ("UPDATE data SET about = '{'", "is damaged: what is known of the data 'mine"),
        ("UPDATE data SET about = '{\"colour\": 1}'", "is damaged: what is known of the data"),
        ("UPDATE array SET shape = '[-1]'", "a shape must be such as"),
        ("UPDATE array SET shape = '[1e3]'", "a shape must be such as"),
        ("UPDATE array SET type = 'O'", "a type must be such as '<f4', got 'O'"),
        ("UPDATE array SET content = x'00'", "is damaged: the array"),
    ],
)
def test_nonsense_with_checksums_is_named(tmp_path: Path, script: str, message: str) -> None:
    change(keep(tmp_path), script)
    reseal(tmp_path)
    with pytest.raises(FileFormatError, match=message) as raised:
        read_all(tmp_path)
    assert str(tmp_path / FILE) in str(raised.value)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("UPDATE run SET head = CAST('mean' AS BLOB)", "was altered"),
        ("UPDATE run SET head = CAST(x'ff' AS TEXT)", "is damaged: Could not decode"),
        ("UPDATE array SET content = 7", "was altered"),
        ("PRAGMA user_version = -3", "its version is -3"),
        ("PRAGMA user_version = 3", "written by lastlayer 0.1 .* run the plan again"),
    ],
)
def test_nonsense_is_named(tmp_path: Path, script: str, message: str) -> None:
    change(keep(tmp_path), script)
    with pytest.raises(FileFormatError, match=message):
        read_all(tmp_path)


def test_deep_json_is_named(tmp_path: Path) -> None:
    change(keep(tmp_path), f"UPDATE data SET about = '{'[' * 100_000}'")
    reseal(tmp_path)
    with pytest.raises(FileFormatError, match="is damaged: what is known of the data"):
        load_study(tmp_path)


def put(folder: Path, shape: list[int], content: bytes) -> None:
    with closing(sqlite3.connect(folder / FILE)) as file:
        values = ("|u1", json.dumps(shape), content)
        file.execute("UPDATE array SET type = ?, shape = ?, content = ?", values)
        file.commit()
    reseal(folder)


def test_an_array_takes_no_more_than_is_stated(study: Path) -> None:
    bomb = zlib.compress(bytes(64 << 20), 9)
    put(study, [MOST + 1], bomb)
    with pytest.raises(FileFormatError, match="an array must take at most 512 MiB"):
        read_all(study)
    put(study, [10], bomb)  # it announces less than it holds
    with pytest.raises(FileFormatError, match="expected 10 bytes"):
        read_all(study)


def test_arrays_take_no_more_at_once_than_is_stated(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastlayer.results.reading.AT_ONCE", 1 << 10)
    put(study, [600], zlib.compress(bytes(600)))
    with pytest.raises(FileFormatError, match="ask for fewer runs at a time"):
        load_study(study).arrays("right_by_class")


def test_an_array_that_could_not_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastlayer.results.blobs.MOST", 1 << 20)
    with pytest.raises(LastLayerError, match="at most 1 MiB, got 2 MiB"):
        pack(np.zeros(1 << 18))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_ordinary_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / FILE)
    for use in (load_study, write):
        with pytest.raises(LastLayerError, match=r"results.sqlite"):
            use(tmp_path)


@pytest.fixture(name="place")
def _place() -> Iterator[Path]:
    """Give a folder that every user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def in_a_child(work: Callable[[], object], *, as_nobody: bool = False) -> str:
    """Do something in a process of its own, and give what it says; it may be killed."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            if as_nobody and os.geteuid() == 0:  # root may write anywhere
                os.setuid(65534)
            os.write(write, str(work()).encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        text = said.read().decode()
    os.waitpid(child, 0)
    return text


def count(folder: Path) -> tuple[bool, list[tuple[str, int]]]:
    """Say whether a folder may be written, and count runs; polars cannot be forked."""
    query = "SELECT state, count(*) FROM run GROUP BY state ORDER BY state"
    with results_file.opened(folder / FILE) as connection:
        return os.access(folder, os.W_OK), connection.execute(query).fetchall()


def save_and_die(folder: Path) -> None:
    with open_store(folder) as store:
        store.plan(dict.fromkeys(("one", "two"), RUN))
        store.save([Record(name, DONE, {"norm": np.ones(3)}) for name in ("one", "two")])
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_journal_is_read_where_nobody_may_write(place: Path) -> None:
    in_a_child(lambda: save_and_die(place))
    assert (place / f"{FILE}-wal").stat().st_size
    (place / f"{FILE}-shm").unlink(missing_ok=True)
    for path in place.iterdir():
        path.chmod(0o644)
    place.chmod(0o555)
    before = {path.name: path.read_bytes() for path in place.iterdir()}

    assert in_a_child(lambda: count(place), as_nobody=True) == "(False, [('done', 2)])"
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_a_file_at_rest_is_read_where_nobody_may_write(place: Path) -> None:
    keep(place)
    (place / FILE).chmod(0o644)
    place.chmod(0o555)
    states = [("done", 2), ("failed", 1), ("planned", 1)]
    assert in_a_child(lambda: count(place), as_nobody=True) == f"(False, {states})"


def test_a_writer_killed_in_a_change_is_undone_for_who_reads(study: Path) -> None:
    """A rollback journal of another size than nothing means that a change was half made."""

    def begin_and_die() -> None:
        with closing(sqlite3.connect(study / FILE, isolation_level=None)) as file:
            file.execute("PRAGMA journal_mode = DELETE")
            file.execute("PRAGMA cache_size = 1")  # pages are written before the change is whole
            file.executescript("BEGIN; UPDATE run SET final = 1; UPDATE array SET content = x'00';")
            os.kill(os.getpid(), signal.SIGKILL)

    expected = load_study(study).done
    in_a_child(begin_and_die)
    assert (study / f"{FILE}-journal").stat().st_size
    assert load_study(study).done.equals(expected)


def test_a_copy_that_changes_meanwhile_is_not_believed(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (study / f"{FILE}-journal").write_bytes(b"something")
    states = iter(range(9))
    monkeypatch.setattr(results_file, "_state", lambda file: next(states))
    with pytest.raises(BusyError, match="try again"):
        load_study(study)
