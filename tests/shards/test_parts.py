"""Parts: named before they are read, never counted twice, and gone on with after a kill."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event, active_count

import numpy as np
import piles
import pytest
import torch
from same import assert_same
from torch import Tensor

import lastlayer as ll
from lastlayer.data.shard_list import Shard
from lastlayer.data.shard_rows import NamesOf
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError, LastLayerError
from lastlayer.estimator.fit_shards import fit_shards
from lastlayer.evaluate import shard_tasks
from lastlayer.evaluate.shard_tasks import (
    Answer,
    Run,
    Task,
    do,
    has_part,
    part_path,
    run_in_threads,
)

Z, Y = piles.data()
TEST = piles.data(500, seed=7)[0]
LONG = 120.0  # seconds that a test waits at most
KILLS = int(os.environ.get("LASTLAYER_KILLS", "20")) // 5


class Noting:
    """Does tasks here, and notes which; after so many it is killed, as it were."""

    def __init__(self, most: int = 1000) -> None:
        self.done: list[str] = []
        self.left = most

    def __call__(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
        for task in tasks:
            if task["kind"] != "look":
                if not self.left:
                    raise KeyboardInterrupt
                self.left -= 1
                self.done.append(task["name"])
            yield task, do(task)


def learn(folder: Path, parts: Path, run: Run, head: str = "slda") -> ll.HeadClassifier:
    clf = ll.HeadClassifier(head, random_state=0)
    selection = Selection(label="species")
    with piles.cut(1):
        return fit_shards(folder, clf, selection, parts=parts, run=run)


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    folder, parts = piles.parquet(tmp_path / "shards", pieces=20), tmp_path / "parts"
    undisturbed = Noting()
    whole = learn(folder, tmp_path / "other", undisturbed)
    assert len(undisturbed.done) == 20 + 5 + 2 + 1
    assert [file.stem for file in (tmp_path / "other").iterdir()] == undisturbed.done[-1:]
    done: list[str] = []
    for most in (5, 14, 2, 2):
        runner = Noting(most)
        with pytest.raises(KeyboardInterrupt):
            learn(folder, parts, runner)
        assert len(runner.done) == most
        done += runner.done
    last = Noting()
    clf = learn(folder, parts, last)
    assert sorted(done + last.done) == sorted(undisturbed.done)  # each was done once
    assert_same(clf, whole, TEST)
    learn(folder, parts, nothing := Noting(0))  # the sum is still there
    assert not nothing.done


def test_a_part_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    folder, parts = piles.parquet(tmp_path / "shards", pieces=4), tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        learn(folder, parts, first := Noting(3))
    spoilt = part_path(parts, first.done[1])
    content = bytearray(spoilt.read_bytes())
    content[-9] ^= 1
    spoilt.write_bytes(bytes(content))
    last = Noting()
    clf = learn(folder, parts, last)
    assert first.done[1] in last.done
    assert first.done[0] not in last.done
    assert_same(clf, ll.fit(folder, "slda", label="species"), TEST)


@pytest.mark.slow  # half a gigabyte: heads behind a map of full width
def test_names_say_all_that_matters(tmp_path: Path) -> None:
    """Other shards, another state of them, another head or map: another name."""
    folder = piles.parquet(tmp_path / "shards", pieces=2)
    found = {}
    for kind in ("first", "again", "head", "touched", "map"):
        if kind == "touched":
            os.utime(folder / "part-0.parquet", ns=(1, 1))
        runner = Noting()
        head = {"head": "ridge", "map": "random_ridge"}.get(kind, "slda")
        learn(folder, tmp_path / kind, runner, head)
        found[kind] = runner.done
    assert found["first"] == found["again"]
    assert found["touched"][0] != found["first"][0]
    assert found["touched"][1] == found["first"][1]
    different = [set(found[kind]) for kind in ("first", "head", "map")]
    assert not different[0] & different[1]
    assert not different[0] & different[2]
    other = piles.parquet(tmp_path / "others", pieces=2)
    z = piles.data(piles.N, seed=5)[0]  # another first thousand rows: another map
    piles.frame(z, list(Y)).write_parquet(other / "part-0.parquet")
    for file in other.iterdir():
        os.replace(file, folder / file.name)
    runner = Noting()
    learn(folder, tmp_path / "parts", runner, "random_ridge")
    assert not set(runner.done) & set(found["map"])


def test_one_that_writes_late_or_twice_changes_nothing(tmp_path: Path) -> None:
    folder, parts = piles.parquet(tmp_path / "shards", pieces=12), tmp_path / "parts"

    class Twice(Noting):
        def __call__(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
            orphans: list[Task] = []
            for task, answer in super().__call__(tasks):
                do(task)  # a retry
                orphans.append(task)
                yield task, answer
            for task in orphans:  # those that were thought lost
                do(task)

    clf = learn(folder, parts, Twice())
    assert_same(clf, ll.fit(folder, "slda", label="species"), TEST)


def test_a_part_that_is_missing_is_noticed(tmp_path: Path) -> None:
    folder = piles.parquet(tmp_path / "shards", pieces=3)

    class Losing(Noting):
        def __call__(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
            for task in tasks:
                names = task.get("names")
                yield task, do({**task, "names": names[:-1]} if names else task)

    with pytest.raises(LastLayerError, match="the sum of all parts must hold 3000 rows, got"):
        learn(folder, tmp_path / "parts", Losing())


@pytest.mark.parametrize("why", [DataError, KeyboardInterrupt])
def test_all_threads_stop(
    why: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error in one of them, or Ctrl-C; the other would read for ever."""
    folder, parts = piles.parquet(tmp_path / "shards", pieces=2), tmp_path / "parts"
    begun, ended = Event(), Event()

    def read(shard: Shard, *_: object) -> Iterator[tuple[Tensor, NamesOf]]:
        end = time.monotonic() + LONG
        if shard.path.endswith("part-0.parquet"):
            assert begun.wait(LONG)
            if why is DataError:
                raise DataError("Injected")
            os.kill(os.getpid(), signal.SIGINT)
        begun.set()
        try:
            while time.monotonic() < end:
                yield torch.ones(2, piles.H), (np.zeros(2, dtype=np.int64), ["owl"])
        except GeneratorExit:  # nobody asks for more
            ended.set()
            raise

    monkeypatch.setattr("lastlayer.evaluate.shard_tasks.read_shard", read)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    try:
        with pytest.raises(why):
            learn(folder, parts, partial(run_in_threads, threads=2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.wait(LONG)
    assert len(list(parts.iterdir())) == 1  # what all parts begin with


def test_an_interrupt_leaves_no_half_of_a_part(tmp_path: Path) -> None:
    folder, parts = piles.parquet(tmp_path / "shards", pieces=20), tmp_path / "parts"
    selection, threads = Selection(label="species"), active_count()

    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    run = partial(run_in_threads, threads=3)
    with pytest.raises(KeyboardInterrupt), piles.cut(1):
        fit_shards(
            folder, ll.HeadClassifier("slda"), selection, parts=parts, run=run, progress=interrupt
        )
    assert active_count() == threads
    there = [file.stem for file in parts.iterdir()]
    assert all(has_part(parts, name) for name in there)
    made = len(there) - 1  # but for what all parts begin with
    assert 1 <= made < 20
    clf = learn(folder, parts, rest := Noting())
    assert len(rest.done) == 20 - made + 5 + 2 + 1
    assert_same(clf, ll.fit(folder, "slda", label="species"), TEST)


def test_the_command_stopped_says_where_parts_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    piles.parquet(tmp_path / "shards", pieces=2)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(shard_tasks._DO, "learn", interrupted)  # type: ignore[arg-type]
        assert piles.run(monkeypatch, "fit shards --head slda --label species --out head.st") == 130
    said = "stopped: parts are in head.st.parts; rerun the same command to resume\n"
    assert capsys.readouterr().err.endswith(said)
    assert piles.run(monkeypatch, "fit shards --head slda --label species --out head.st") == 0
    assert not Path("head.st.parts").exists()
    assert piles.run(monkeypatch, "show head.st") == 0  # whatever its name
    assert "head.st: a head, slda" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with signals")
def test_killed_again_and_again(tmp_path: Path) -> None:
    """The command, killed at random moments: the same head in the end, and no half of one."""
    folder, out = piles.parquet(tmp_path / "shards", pieces=6), tmp_path / "head.safetensors"
    script = (
        "from lastlayer.cli import main; from lastlayer.evaluate import shard_tasks, shards;"
        "shard_tasks.cores = lambda: 2; shards._group_bytes = lambda *_: 1; main()"
    )
    command = [sys.executable, "-c", script, "fit", str(folder), "--head", "slda"]
    command += ["--label", "species", "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    chance, killed = random.Random(0), 0
    while killed < KILLS:
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        begin = time.monotonic()
        parts = set(tmp_path.glob("head.safetensors.parts/*"))
        while child.poll() is None and set(tmp_path.glob("head.safetensors.parts/*")) <= parts:
            assert time.monotonic() - begin < 600
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.2))
        child.send_signal(signal.SIGKILL)
        if child.wait() != -signal.SIGKILL:
            break  # it was finished before
        killed += 1
        if out.exists():
            break
    assert killed
    command += [*["--force"] * out.exists()]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    expected = ll.fit(folder, "slda", label="species")
    assert_same(ll.HeadClassifier.load(out), expected, TEST)
    assert not list(tmp_path.glob("*.parts"))
