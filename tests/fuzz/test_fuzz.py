"""A few tries of the fuzz suite; `make fuzz` makes as many as you like."""

import os
from pathlib import Path

import pytest
from tests.fuzz.__main__ import PATH, Report, Worker, fuzz, plan
from tests.fuzz.calls import data, heads, targets
from tests.fuzz.kinds import KINDS

limited = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="limits and counts memory and time on Linux"
)


@limited
@pytest.mark.slow
def test_no_fault_in_a_few_tries() -> None:
    before = set(os.listdir(Path.cwd()))
    report = fuzz(files=60, calls=300, seconds=600)
    assert not report.faults, "\n".join(report.lines())
    assert {group for group, _, _ in report.counts} == {"files", "calls"}
    assert {"read", "refused"} <= {outcome for _, _, outcome in report.counts}
    assert set(os.listdir(Path.cwd())) == before


def test_every_kind_of_file_and_every_public_name_comes_up() -> None:
    tries = plan(files=2000, calls=5000, seed=0)
    assert {name for group, name, _ in tries if group == "files"} == set(KINDS)
    names = {name for group, name, _ in tries if group == "calls"}
    assert names == {*targets(), *(f"head {name}" for name, _ in heads())}
    assert tries == plan(files=2000, calls=5000, seed=0)
    assert plan(0, 0, 0, only="calls/lastlayer.make_head/7") == [
        ("calls", "lastlayer.make_head", 7)
    ]


FAULTS = """
import os, time
import lastlayer as ll

def raise_(name):
    raise ValueError("foreign")

def fill(name):
    bytearray(3 << 30)

def hang(name):
    time.sleep(60)

ll.make_scenario, ll.make_head, ll.load_head = raise_, fill, hang
"""


@limited
@pytest.mark.slow
def test_faults_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that do wrong, planted in a worker, are told of."""
    (tmp_path / "sitecustomize.py").write_text(FAULTS)
    monkeypatch.setattr("tests.fuzz.__main__.PATH", (str(tmp_path), *PATH))
    (tmp_path / "examples").mkdir()
    data().save(tmp_path / "examples" / "features.safetensors")
    worker, report = Worker(tmp_path), Report()
    try:
        for number, name in enumerate(("make_scenario", "make_head", "load_head", "ended")):
            monkeypatch.setattr("tests.fuzz.__main__.HANG", 2.0 if name == "load_head" else 60.0)
            monkeypatch.setattr("tests.fuzz.__main__.BUSY", 1)
            report.add("calls", name, number, worker.attempt("calls", f"lastlayer.{name}", "1"))
    finally:
        worker.close()
    said = "\n".join(report.lines())
    for expected in ("ValueError: foreign", "MemoryError", "took more than 2 s", "KeyError"):
        assert expected in said
    assert report.lines()[-1] == "4 kinds of fault"
