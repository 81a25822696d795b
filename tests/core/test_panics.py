"""Damaged tables end in one line, without what polars' Rust prints; all else is still printed."""

import subprocess
import sys

PROGRAM = """
import os, random, sys
from contextlib import suppress
import polars as pl
from lastlayer.core.panics import keep_from_terminal, without_panics
from lastlayer.data.from_tables import import_features
from lastlayer.errors import LastLayerError

if "quiet" in sys.argv:
    keep_from_terminal()
random = random.Random(0)
columns = {"z_0": [0.5, 1.5] * 30, "z_1": [2.0] * 60, "y": ["a", "b"] * 30}
pl.DataFrame(columns).write_parquet("good")
good = open("good", "rb").read()
for _ in range(60):
    damaged = bytearray(good)
    for _ in range(random.choice((1, 5, 30))):
        damaged[random.randrange(len(damaged))] = random.randrange(256)
    open("damaged.parquet", "wb").write(bytes(damaged))
    with suppress(LastLayerError):
        import_features("damaged.parquet", "z_*", "y", test=0.2)
with without_panics():
    os.write(2, b"thread 'x' panicked at y\\n")
with without_panics(), without_panics():
    print("from Python", file=sys.stderr)
    os.write(2, b"from elsewhere\\n")
print("after", file=sys.stderr)
"""


def said(tmp_path, *words):
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    return done.stderr


THREADS = """
import sys
from threading import Thread
from lastlayer.core.panics import keep_from_terminal, without_panics

keep_from_terminal()

def write():
    for _ in range(20_000):
        print("x", file=sys.stderr)

writer = Thread(target=write)
writer.start()
while writer.is_alive():
    with without_panics():
        pass
"""


def test_other_threads_may_write_meanwhile(tmp_path):
    command = [sys.executable, "-c", THREADS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stderr.splitlines()) <= {"x", ""}


def test_panics_are_not_printed(tmp_path):
    assert said(tmp_path, "quiet").splitlines() == ["from Python", "from elsewhere", "after"]


def test_only_a_program_of_ours_moves_stderr(tmp_path):
    assert "thread 'x' panicked at y" in said(tmp_path)
