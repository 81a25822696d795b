"""The store: the order in which it writes, what a kill leaves, and what it says when it cannot."""

import os
import resource
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
import torch
from live_streams import begun, made_up

import lastlayer as ll
from lastlayer.errors import (
    BusyError,
    FileFormatError,
    MissingFileError,
    NotWaitingError,
    UnavailableError,
    WriteError,
)
from lastlayer.live import LiveHead
from lastlayer.live.store import database
from lastlayer.live.store.head_store import Store
from lastlayer.live.working import recover


def bits(folder: Path) -> dict[str, torch.Tensor]:
    store = Store(folder)
    try:
        return known(recover(store, None, None).head)
    finally:
        store.close()


def known(head: ll.heads.Head) -> dict[str, torch.Tensor]:
    """Return the state without what lies above the diagonal of a scatter, which nobody reads."""
    state = head.state_dict()
    return {name: t.tril() if name.endswith("scatter") else t for name, t in state.items()}


@pytest.mark.parametrize("head", ["slda", "random_ridge", "knn", "weight_norm"])
def test_after_a_kill_it_has_the_bits_of_the_undisturbed_run(head: str, tmp_path: Path) -> None:
    options = {"width": 30} if head == "random_ridge" else {}
    z, y = made_up(30, 1)
    forgets = begun(head, **options).head_.abilities.forgets
    with LiveHead(begun(head, **options), tmp_path / "live", fresh=0) as live:
        for place in range(0, 30, 3):
            live.learn(z[place : place + 3], y[place : place + 3])
            live.predict(z)  # it folds, so that a copy can be made
            live.learn(z[place : place + 1], ["more"])
            if place == 15 and forgets:
                live.forget(z[3:5], y[3:5])
        killed = tmp_path / "killed"
        shutil.copytree(live.store.folder, killed)  # what a kill would leave
        undisturbed = known(live.writer.working.head)
        after = bits(killed)
    assert all(torch.equal(after[name], undisturbed[name]) for name in undisturbed)


def test_the_file_is_on_the_disk_before_the_journal_is_erased(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, y = made_up(3, 1)
    done: list[str] = []
    fsync, replace, erase = os.fsync, os.replace, Store.erase

    def noted_fsync(number: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{number}")).name
        done.append(f"fsync {'part' if name.startswith('.head') else name}")
        fsync(number)

    def noted_replace(one: Path, other: Path) -> None:
        done.append("rename")
        replace(one, other)

    def noted_erase(store: Store, through: int) -> None:
        assert list(store.journal(-1))
        assert through == 1
        done.append("erase")
        erase(store, through)

    with LiveHead(begun(), folder) as live:
        live.learn(z, y)
        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(os, "replace", noted_replace)
        monkeypatch.setattr(Store, "erase", noted_erase)
        live.checkpoint()
        monkeypatch.undo()
        assert done == ["fsync part", "rename", "fsync live", "erase"]
        assert list(live.store.journal(-1)) == []


def test_a_checkpoint_that_fails_loses_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, y = made_up(6, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with LiveHead(begun(), folder, fresh=0) as live:
        live.learn(z, y)
        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(UnavailableError, match="not yet erased"):
            live.forget(z[:1], y[:1], request="f")
        assert live.learn(z[:1], ["owl"])["change"] == 3  # it goes on
        assert "No space left" in live.writer.trouble
        monkeypatch.undo()
        killed = tmp_path / "killed"
        shutil.copytree(folder, killed)
        undisturbed, after = known(live.writer.working.head), bits(killed)
        assert all(torch.equal(after[name], undisturbed[name]) for name in undisturbed)
        assert live.forget(z[:1], y[:1], request="f")["change"] == 2
        assert not live.store.forgets()


def test_a_commit_that_fails_leaves_it_read_only_and_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, y = made_up(6, 1)
    with LiveHead(begun(), folder, fresh=0) as live:
        live.learn(z[:3], y[:3], request="r1")
        answer = live.predict(z)

        def full(*_: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(Store, "_write", full)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="database or disk is full"):
                live.learn(z[3:], y[3:], request="r2")
        assert live.predict(z) == answer
        assert live.writer.working.change == live.change == 1
    monkeypatch.undo()
    with LiveHead(None, folder, fresh=0) as live:
        assert live.learn(z[:3], y[:3], request="r1")["change"] == 1
        assert live.learn(z[3:], y[3:], request="r2")["change"] == 2


def test_a_journal_that_cannot_be_read_leaves_it_read_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, y = made_up(6, 1)
    with LiveHead(begun(), folder, fresh=0) as live:
        answer = live.predict(z)

        def damaged(*_: object) -> None:
            raise FileFormatError("database disk image is malformed")

        monkeypatch.setattr(Store, "answered", damaged)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="malformed"):
                live.learn(z, y, request="r1")
        assert live.predict(z) == answer


def test_while_read_only_it_sleeps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = made_up(6, 1)
    with LiveHead(begun(), folder, fresh=0) as live:
        live.learn(z, y)
        monkeypatch.setattr(Store, "commit", _full)
        with pytest.raises(UnavailableError):
            live.learn(z, y)
        for name in ("_sweep", "_since", "_retry"):
            monkeypatch.setattr(live.writer, name, -1e9)  # long after all of it was due
        assert live.writer._patience() > 1


def _full(*_: object) -> None:
    raise WriteError("No space left on device")


def test_one_service_for_a_store(folder: Path) -> None:
    with LiveHead(begun(), folder), pytest.raises(BusyError, match="another service"):
        LiveHead(None, folder)


def test_a_damaged_journal_is_no_journal(folder: Path, tmp_path: Path) -> None:
    z, y = made_up(3, 1)
    with LiveHead(begun(), folder) as live:
        live.learn(z, y)
        killed = tmp_path / "killed"
        shutil.copytree(folder, killed)
    altered = sqlite3.connect(killed / "journal.sqlite")
    altered.execute('UPDATE entry SET labels = \'[["c9", "c9", "c9"], []]\'')
    altered.commit()
    altered.close()
    with pytest.raises(FileFormatError, match="altered at change 1"):
        LiveHead(None, killed)
    file = folder / "journal.sqlite"
    whole = file.read_bytes()
    for page in range(1, len(whole) // 4096):
        file.write_bytes(whole[: 4096 * page] + b"?" * 4096 + whole[4096 * (page + 1) :])
        try:
            LiveHead(None, folder).close()  # a page that nobody needs
        except FileFormatError as error:
            assert "is damaged" in str(error)  # noqa: PT017  (or it opens)
        file.write_bytes(whole)
    (folder / "head.safetensors").unlink()
    file.write_bytes(b"no database" * 500)
    with pytest.raises(FileFormatError, match="cannot be read as a journal"):
        LiveHead(begun(), folder)


def test_a_disk_without_room_is_no_damage(folder: Path, tmp_path: Path) -> None:
    with LiveHead(begun(), folder) as live:
        live.learn(*made_up(3000, 1))
        killed = tmp_path / "killed"
        shutil.copytree(folder, killed)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = (killed / "journal.sqlite").stat().st_size + 8192
    assert most < (killed / "journal.sqlite-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))  # the log cannot be written back
    try:
        with pytest.raises(WriteError, match="make room, and start it again"):
            LiveHead(None, killed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with LiveHead(None, killed) as live:
        assert live.change == 1


def test_changes_that_are_missing_are_not_skipped(folder: Path, tmp_path: Path) -> None:
    with LiveHead(begun(), folder) as live:
        for place in range(3):
            live.learn(*made_up(3, place))
        killed = tmp_path / "killed"
        shutil.copytree(folder, killed)
    altered = sqlite3.connect(killed / "journal.sqlite")
    altered.execute("DELETE FROM entry WHERE change = 2")
    altered.commit()
    altered.close()
    with pytest.raises(FileFormatError, match="change 1 is followed by 3"):
        LiveHead(None, killed)


def test_a_head_that_is_missing_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    with LiveHead(begun(), folder) as live:
        live.learn(*made_up(3, 1))
        killed = tmp_path / "killed"
        shutil.copytree(folder, killed)
    (killed / "head.safetensors").unlink()
    with pytest.raises(MissingFileError, match="has changes of it"):
        LiveHead(begun(), killed)


def test_a_format_of_the_future_is_refused(folder: Path) -> None:
    LiveHead(begun(), folder).close()
    later = sqlite3.connect(folder / "journal.sqlite")
    later.execute(f"PRAGMA user_version = {database.FORMAT + 1}")
    later.close()
    with pytest.raises(FileFormatError, match="upgrade lastlayer"):
        LiveHead(None, folder)


def test_a_start_removes_what_a_kill_left(folder: Path) -> None:
    LiveHead(begun(), folder).close()
    for name in (".head.safetensors.abc", ".tmpU8ThFB"):  # the other is safetensors' own
        (folder / name).write_bytes(b"half")
    LiveHead(None, folder).close()
    assert not list(folder.glob(".*"))


def test_a_clock_that_goes_back_keeps_rows_waiting(folder: Path) -> None:
    z, _ = made_up(1)
    with LiveHead(begun(), folder) as live:
        live.predict(z, id="a")
        since = live.review()[0].since
    time = [since + 5.0]
    store = Store(folder, clock=lambda: time[0])
    assert (store.now(), store.behind) == (since + 5, 0)
    time[0] = since - 1000  # while it runs
    assert store.now() == since + 5
    assert store.behind == pytest.approx(1005, abs=1)
    store.close()
    store = Store(folder, clock=lambda: time[0])  # and while it did not
    assert store.now() == pytest.approx(since, abs=0.1)
    assert store.behind == pytest.approx(1000, abs=1)
    store.close()


def test_deleted_bytes_are_overwritten(folder: Path) -> None:
    z, y = made_up(300, 1)
    with LiveHead(begun(), folder) as live:
        live.learn(z, y)
        assert z[7].tobytes() in _all(folder)
        live.forget(z, y)
        assert not any(row.tobytes()[:16] in _all(folder) for row in z)


@pytest.mark.parametrize("sent", ["float16", "float32", "float64"])
def test_a_row_that_is_forgotten_no_longer_waits(folder: Path, sent: str) -> None:
    z, y = made_up(3, 1)
    rows = z.astype(sent)
    with LiveHead(begun(), folder) as live:
        for place in range(3):
            live.predict(rows[place : place + 1], id=f"a{place}")
        live.learn(rows, y)
        live.forget(rows[:2].astype(float), y[:2])  # sent as another type than it waits
        assert not any(row.tobytes() in _all(folder) for row in rows[:2])
        assert [one.id for one in live.review()] == ["a2"]
        with pytest.raises(NotWaitingError):
            live.label("a0", y[0])
        gate = threading.Event()
        live.writer.order(gate.wait)  # so that what follows comes as one group
        answer = live.snapshot.answer(rows[2:])
        waits = live.let_wait(rows[2:], answer, "a3", None)
        gone = live.ask("forget", rows[2:], y[2:])
        gate.set()
        assert (waits.result(), gone.result()["rows"]) == ({}, 1)
        assert live.review() == []
        assert rows[2].tobytes() not in _all(folder)


def _all(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


def test_a_store_is_its_owners_alone(folder: Path) -> None:
    LiveHead(begun(), folder).close()
    assert folder.stat().st_mode & 0o077 == 0
    assert ll.load_head(folder / "head.safetensors").class_names == ["c0", "c1", "c2"]
