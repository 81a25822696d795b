"""The faults that `python -m tests.mutants` plants, and how it tells whether a test finds one."""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.mutants.__main__ import (
    MARKED,
    ROOMS,
    ROOT,
    Trees,
    append,
    choose,
    draw,
    read,
    summary,
    untried,
)
from tests.mutants.__main__ import test_files as files_that_test
from tests.mutants.faults import Fault, find_faults
from tests.mutants.trial import ANYTHING

MODULE = '''"""A number: 1."""

__all__ = ["f"]
Number = int | float


@cache(size=3)
def f(é: int | None = 0) -> "1 < 2":
    """Return 1 + 1."""
    if é < 2 and not g(é):
        raise ValueError(f"expected {1 + 1}")
    return é + 1
'''


def changes() -> set[tuple[str, str]]:
    return {(fault.before, fault.after) for fault in find_faults("m.py", MODULE)}


def test_every_change_that_is_meant_and_no_other() -> None:
    assert changes() == {
        ("0", "1"), ("é < 2", "(é <= 2)"), ("é < 2", "(é >= 2)"), ("2", "3"),
        ("not g(é)", "(g(é))"),
        ("é < 2 and not g(é)", "(é < 2 or not g(é))"),
        ("é < 2 and not g(é)", "(not (é < 2 and (not g(é))))"),
        ('raise ValueError(f"expected {1 + 1}")', "pass"), ("return é + 1", "return None"),
        ("é + 1", "(é - 1)"), ("1", "2"),
    }  # fmt: skip


def test_a_fault_changes_its_place_alone() -> None:
    for fault in find_faults("m.py", MODULE):
        planted = fault.plant(MODULE)
        assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(MODULE))
        lines = list(zip(MODULE.splitlines(), planted.splitlines(), strict=True))
        assert [a == b for a, b in lines].count(False) == 1
        assert fault.function == 7  # where the decorator of the function stands


def test_faults_are_drawn_by_their_seed() -> None:
    drawn = draw("layers/", 10, seed=1)
    assert len(set(drawn)) == 10
    assert drawn == draw("layers/", 10, seed=1) != draw("layers/", 10, seed=2)
    assert {fault.room for fault in draw("", 200, seed=0)} > {"heads", "study", "report"}


def test_tests_that_reach_the_function_come_quickest_first() -> None:
    fault = Fault("m.py", 10, 7, 10, 12, "é < 2", "(é <= 2)", 7)
    tests = {
        "slow": {"failed": False, "seconds": 2.0, "reach": ["m.py:7"]},
        "quick": {"failed": False, "seconds": 1.0, "reach": ["m.py:7"]},
        "fails anyway": {"failed": True, "seconds": 0.0, "reach": ["m.py:7"]},
        "elsewhere": {"failed": False, "seconds": 0.0, "reach": ["m.py:70"]},
        "in a process": {"failed": False, "seconds": 3.0, "reach": [ANYTHING]},
    }
    assert choose(fault, tests) == ["quick", "slow", "in a process"]


def test_the_last_verdict_counts(tmp_path: Path) -> None:
    first, second = find_faults("m.py", MODULE)[:2]
    out = tmp_path / "mutants.jsonl"
    assert read(out) == {}
    for fault, verdict, command in (
        (first, "survived", "make test"),
        (second, "timeout", "make test"),
        (first, "found", "make test-all"),
    ):
        append(out, {**vars(fault), "verdict": verdict, "by": "", "command": command})
    assert summary([first, second], read(out)) == [
        "found by          make test  make test-all        nothing",
        ".                         1              1              0",
        "2 of 2 found (100.0%), 1 by make test-all (50.0% of them), "
        "1 by make test (50.0% of them), 1 by their time limit",
    ]


def test_what_the_quick_tests_do_not_find_meets_the_others() -> None:
    one, two, three = find_faults("m.py", MODULE)[:3]
    quick, every = MARKED
    known = {
        one: {"verdict": "survived", "command": quick},
        two: {"verdict": "found", "command": quick},
    }
    assert untried([one, two, three], known, quick, again=False) == [three]
    assert untried([one, two, three], known, every, again=False) == [one]
    known[one]["command"] = every
    assert untried([one, two], known, every, again=False) == []
    assert untried([one, two], known, quick, again=True) == [one]


def test_the_commands_are_the_makefiles() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for marked in MARKED.values():
        assert f'-m "{marked}"' in makefile


def test_every_module_lies_in_a_room_with_tests() -> None:
    folders = {p.parent.name for p in (ROOT / "src" / "lastlayer").glob("*/__init__.py")}
    for room in (*folders, "."):
        assert room in ROOMS
        assert any(name.startswith("tests/") for name in files_that_test(room)), room


PLANT = """
from pathlib import Path
from tests.mutants import __main__ as mutants

mutants.ROOT, mutants.PRELOADED = Path.cwd(), ("hypothesis",)
mutants.main()
"""
TESTED = """
def double(n):
    m = 0 if n < 1 else n
    return n + m


def unused():
    return 1
"""
TESTS = """
import pytest
from lastlayer.layers.tested import double

@pytest.mark.slow
def test_left_to_test_all():
    assert double(0) == 0

def test_it_doubles():
    assert double(3) == 6

def test_that_fails_anyway():
    assert double(3) == 7
"""


def test_a_fault_is_found_or_survives(tmp_path: Path) -> None:
    for name, content in {
        "src/lastlayer/__init__.py": "",
        "src/lastlayer/layers/tested.py": TESTED,
        "tests/layers/test_it.py": TESTS,
        "pytest.ini": "[pytest]\nmarkers = slow\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    done = subprocess.run(
        [sys.executable, "-c", PLANT, "--count", "100", "--jobs", "2", "--out", "out.jsonl"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "test_that_fails_anyway" in done.stdout
    known = read(tmp_path / "out.jsonl")
    assert {(fault.line, fault.after): line["verdict"] for fault, line in known.items()} == {
        (3, "1"): "found", (3, "(n <= 1)"): "survived", (3, "(n >= 1)"): "found",
        (3, "2"): "survived", (4, "(n - m)"): "found", (4, "return None"): "found",
        (8, "return None"): "survived", (8, "2"): "survived",
    }  # fmt: skip
    by = {fault.after: line["by"] for fault, line in known.items() if fault.line == 3}
    assert by["1"] == "tests/layers/test_it.py::test_left_to_test_all"
    assert by["(n >= 1)"] == "tests/layers/test_it.py::test_it_doubles"
    assert (tmp_path / "src" / "lastlayer" / "layers" / "tested.py").read_text() == TESTED


def test_what_hangs_is_ended_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutants.__main__.ROOT", tmp_path / "nothing")
    (tmp_path / "nothing").mkdir()
    results: dict[str, object] = {}

    def task(name: str, limit: float, do: Callable[[Path], object]) -> object:
        return do, limit, lambda _, result: results.update({name: result})

    tasks = [
        task("ends", 600, lambda tree: tree.name), task("hangs", 0.2, lambda _: time.sleep(600)),
        task("dies", 600, lambda _: os._exit(3)),
    ]  # fmt: skip
    Trees(tmp_path, jobs=2).work(iter(tasks), time.monotonic() + 600)
    assert results == {
        "ends": "tree-1", "hangs": None, "dies": "the process ended with 3: "
    }  # fmt: skip
