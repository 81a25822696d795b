"""Plant small faults in lastlayer, one at a time, and see whether the tests of their folder fail.

    python -m tests.mutants --count 300 --seed 0 --jobs 8 --out mutants.jsonl

Each fault lies in a copy of the project; nothing is written into the tree but the file that --out
names. First the tests run without any fault, which shows which tests call which functions, how
long they take, and which fail anyway and are left out. Then each fault meets the tests that call
the function it lies in, quickest first, until one fails: those of `make test`, and where none of
them finds it, those of `make test-all`, unless --quick leaves these out. A run that was stopped
goes on where it was; --again tries those faults again that no test had found.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.mutants.faults import Fault, find_faults
from tests.mutants.trial import ANYTHING, hunt, start, watch

ROOT = Path(__file__).parents[2]
ROOMS = (
    "core", "catalogue", "heads", "layers", "evaluate", "estimator", "analysis", "scenarios",
    "results", "study", "data", "extraction", "advice", "labels", "live", "shards", "report",
    "paper", "replay", "cli", ".",
)  # fmt: skip
ELSEWHERE = ("cluster.py", "__main__.py")  # tested with Ray, in tests_extras; and a line to start
MARKED = {"make test": "not slow", "make test-all": "slow"}  # as the Makefile says with -m
COPIED = ("src", "tests", "docs", "results", "examples", "benchmarks")
PRELOADED = (
    "hypothesis",
    "numpy",
    "scipy.linalg",
    "sklearn",
    "torch",
)  # before children are forked
Measured = dict[str, dict[str, Any]]  # by room and name of the test
PATIENCE = 300.0, 20.0  # seconds, and so many times what its tests take: only one that sleeps on


class Trees:
    """Copies of the project, and the children at work in them."""

    def __init__(self, place: Path, jobs: int) -> None:
        self._free = [self._copy(place / f"tree-{job}") for job in range(jobs)]
        self._busy: dict[int, tuple[Path, float, Callable[[Any], None]]] = {}

    @staticmethod
    def _copy(tree: Path) -> Path:
        tree.mkdir()
        for path in ROOT.iterdir():
            if path.is_dir() and path.name in COPIED:
                shutil.copytree(path, tree / path.name, ignore=shutil.ignore_patterns("*.pyc"))
            elif path.is_file():
                shutil.copy(path, tree)
        return tree

    def work(
        self,
        tasks: Iterator[tuple[Callable[[Path], Any], float, Callable[[Path, Any], None]]],
        end: float,
    ) -> None:
        """Do tasks until there are no more, or until the time is up.

        Args:
            tasks: each with its limit in seconds, and with what takes its result: None when the
                child was ended by its limit, and the text of an error when it ended itself.
            end: when to stop; what is then at work is ended, and gives no result.
        """
        more = True
        while (more or self._busy) and time.monotonic() < end:
            while more and self._free:
                job = next(tasks, None)
                if job is None:
                    more = False
                    break
                task, limit, take = job
                tree = self._free.pop()
                child = start(tree, partial(task, tree))
                self._busy[child] = (tree, time.monotonic() + limit, partial(take, tree))
            self._gather()
            time.sleep(0.02)
        for child in list(self._busy):
            self._end(child)

    def _gather(self) -> None:
        for child, (tree, limit, take) in list(self._busy.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                self._end(child, waited=True)
                result = tree / "result.json"
                if os.waitstatus_to_exitcode(status) == -signal.SIGPROF:
                    take(None)  # a test computed for too long
                    continue
                said = (tree / "said.txt").read_text(errors="replace")[-500:]
                ended = f"the process ended with {os.waitstatus_to_exitcode(status)}: {said}"
                take(json.loads(result.read_text()) if result.is_file() else ended)
            elif time.monotonic() > limit:
                self._end(child)
                take(None)

    def _end(self, child: int, waited: bool = False) -> None:
        """End a child with all that it started, and free its tree."""
        tree, _, _ = self._busy.pop(child)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        if not waited:
            os.waitpid(child, 0)
        shutil.rmtree(tree / "tmp", ignore_errors=True)
        self._free.append(tree)


def files_of(folder: Path, room: str, pattern: str) -> list[Path]:
    """List the files of a room; "." has those that lie beside the folders."""
    found = folder.glob(pattern) if room == "." else (folder / room).rglob(pattern)
    return sorted(path for path in found if path.name not in ELSEWHERE)


def test_files(room: str) -> list[str]:
    """List what tests a room: its tests, and the doctests of its modules."""
    source = ROOT / "src" / "lastlayer"
    modules = files_of(source, room, "*.py") if room == "." else [source / room]
    paths = [*files_of(ROOT / "tests", room, "test_*.py"), *modules]
    return [path.relative_to(ROOT).as_posix() for path in paths]


def measure(trees: Trees, rooms: list[str], end: float, marked: str) -> Measured:
    """Run the tests of each room without any fault."""
    begin = time.monotonic()
    found: Measured = {room: {} for room in rooms}

    def tasks() -> Iterator[Any]:
        for room in rooms:
            for file in test_files(room):
                take = partial(took, room, file)
                yield lambda tree, file=file: watch(tree, [file], marked), 3600.0, take

    def took(room: str, file: str, _: Path, result: Any) -> None:
        if not isinstance(result, dict):
            print(f"without a fault, {file} cannot be run: {result or 'it hangs'}")
            return
        found[room] |= result

    trees.work(tasks(), end)
    failing = [name for tests in found.values() for name, t in tests.items() if t["failed"]]
    if failing:
        print("left out, since they fail without a fault:", *failing, sep="\n  ")
    n, seconds = len(failing), time.monotonic() - begin
    print(f"{sum(map(len, found.values())) - n} tests measured in {seconds:.0f} s", flush=True)
    return found


def measure_once(trees: Trees, rooms: list[str], end: float, kept: Path, marked: str) -> Measured:
    """Measure, or read what was measured before of the same code in the same place."""
    digest = hashlib.sha256(f"{platform.platform()} {sys.version} {rooms} {marked}".encode())
    for path in sorted(p for folder in ("src", "tests") for p in (ROOT / folder).rglob("*.py")):
        digest.update(path.read_bytes())
    with contextlib.suppress(FileNotFoundError):
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before["code"] == digest.hexdigest():
            return before["tests"]
    measured = measure(trees, rooms, end, marked)
    if time.monotonic() < end:
        kept.write_text(json.dumps({"code": digest.hexdigest(), "tests": measured}))
    return measured


def choose(fault: Fault, tests: dict[str, Any]) -> list[str]:
    """List the tests that call the function that a fault lies in, quickest first."""
    function = f"{fault.module}:{fault.function}"
    chosen = [
        name
        for name, test in tests.items()
        if not test["failed"]
        and (not fault.function or function in test["reach"] or ANYTHING in test["reach"])
    ]
    return sorted(chosen, key=lambda name: (tests[name]["seconds"], name))


def draw(only: str, count: int, seed: int) -> list[Fault]:
    """Choose faults at random among all that can be planted."""
    source = ROOT / "src" / "lastlayer"
    modules = sorted(path for room in ROOMS for path in files_of(source, room, "*.py"))
    every = []
    for path in modules:
        module = path.relative_to(source).as_posix()
        if module.startswith(only):
            every += find_faults(module, path.read_text(encoding="utf-8"))
    return random.Random(seed).sample(every, min(count, len(every)))


def trials(
    faults: list[Fault], measured: Measured, write: Callable[[Any], None], command: str
) -> Iterator[Any]:
    """Give a task for each fault: to meet the tests of a command."""
    for fault in faults:
        tests = measured[fault.room]
        chosen = {name: tests[name]["seconds"] for name in choose(fault, tests)}
        limit = PATIENCE[0] + PATIENCE[1] * sum(chosen.values())
        judge = partial(_judge, fault, write, command)
        yield partial(_meet, fault, chosen, MARKED[command]), limit, judge


def _meet(fault: Fault, chosen: dict[str, float], marked: str, tree: Path) -> str:
    if not chosen:
        return ""
    path = tree / "src" / "lastlayer" / fault.module
    path.write_text(fault.plant(path.read_text(encoding="utf-8")), encoding="utf-8")
    return hunt(sorted({name.split("::")[0] for name in chosen}), chosen, marked)


def _judge(
    fault: Fault, write: Callable[[Any], None], command: str, tree: Path, result: str | None
) -> None:
    home = Path("src") / "lastlayer" / fault.module
    shutil.copy(ROOT / home, tree / home)
    verdict = "timeout" if result is None else "found" if result else "survived"
    met = {"verdict": verdict, "by": result or "", "command": command}
    write({**dataclasses.asdict(fault), **met})


def read(out: Path) -> dict[Fault, dict[str, Any]]:
    """Read what came of faults before; where one was tried twice, the last time counts."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    known = {}
    for line in map(json.loads, lines):
        known[Fault(**{f.name: line[f.name] for f in dataclasses.fields(Fault)})] = line
    return known


def append(out: Path, line: dict[str, Any]) -> None:
    """Write what came of a fault."""
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def summary(faults: list[Fault], known: dict[Fault, dict[str, Any]]) -> list[str]:
    """Write the share that was found and by which command, and those that were not."""
    lines = [known[fault] for fault in faults if fault in known]
    verdicts = Counter(line["verdict"] for line in lines)
    found = verdicts["found"] + verdicts["timeout"]
    commands = Counter(line["command"] for line in lines if line["verdict"] != "survived")
    survivors = [
        f"{line['module']}:{line['line']}: {line['before']} → {line['after']}"
        for line in lines
        if line["verdict"] == "survived"
    ]
    share = f"{found} of {len(lines)} found ({found / max(len(lines), 1):.1%})"
    by = [f"{n} by {command} ({n / found:.1%} of them)" for command, n in commands.most_common()]
    late = f"{verdicts['timeout']} by their time limit"
    return [*survivors, *by_room(faults, known), ", ".join([share, *by, late])]


def by_room(faults: list[Fault], known: dict[Fault, dict[str, Any]]) -> list[str]:
    """Write a table: how many faults of a room each command found, and how many none did."""
    kinds = [*MARKED, "nothing"]
    counts = Counter(
        (f.room, known[f]["command"] if known[f]["verdict"] != "survived" else "nothing")
        for f in faults
        if f in known
    )
    rooms = sorted({room for room, _ in counts})
    head = f"{'found by':12}" + "".join(f"{kind:>15}" for kind in kinds)
    return [
        head,
        *(f"{room:12}" + "".join(f"{counts[room, kind]:15}" for kind in kinds) for room in rooms),
    ]


def main() -> None:
    """Plant as the options say, and write what came of it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=40, help="faults to plant")
    parser.add_argument("--seed", type=int, default=0, help="decides which")
    parser.add_argument("--only", default="", help="how the names of modules begin: heads/mean")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="when to stop")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--quick", action="store_true", help="with the tests of make test alone")
    parser.add_argument("--again", action="store_true", help="those too that had survived")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    faults = draw(options.only, options.count, options.seed)
    os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    for name in PRELOADED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="lastlayer-mutants-") as place:
        trees = Trees(Path(place), options.jobs)
        for command in list(MARKED)[: 1 if options.quick else None]:
            left = untried(faults, read(options.out), command, options.again)
            kept = options.out.with_suffix(f".{command.replace(' ', '-')}.json")
            if left:
                rooms = sorted({fault.room for fault in left})
                measured = measure_once(trees, rooms, end, kept, MARKED[command])
                trees.work(trials(left, measured, partial(append, options.out), command), end)
    print("\n".join(summary(faults, read(options.out))))


def untried(
    faults: list[Fault], known: dict[Fault, dict[str, Any]], command: str, again: bool
) -> list[Fault]:
    """List the faults that the tests of a command have yet to meet."""
    order = list(MARKED)

    def met(fault: Fault) -> bool:
        if fault not in known:
            return command != order[0]  # those of make test come first
        line = known[fault]
        done = order.index(line["command"]) >= order.index(command)
        return line["verdict"] != "survived" or (done and not again)

    return [fault for fault in faults if not met(fault)]


if __name__ == "__main__":
    main()
