"""Fuzz lastlayer: damaged files of every kind, hostile arguments to every public name.

    python -m tests.fuzz --files 10000 --calls 100000 --seconds 3600

Each try is made in a process of its own folder, with a limit on time and memory, and has a name
(such as files/plan/17) by which it can be made again: --only files/plan/17.
"""

import argparse
import contextlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HANG = 20.0  # seconds of a core that a try may take
BUSY = 6  # times as long by the clock, where others use the cores
START = 120.0  # and the first one, with all that is imported
ROOT = Path(__file__).parents[2]
PATH = (str(ROOT / "src"), str(ROOT))  # where a worker finds lastlayer and these tests


@dataclass
class Report:
    """What came of all tries."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    faults: dict[str, list[str]] = field(default_factory=dict)  # by what they have in common

    def add(self, group: str, name: str, number: int, result: dict[str, Any]) -> None:
        """Count a try; keep its name where it found a fault."""
        self.counts[group, name, result["outcome"]] += 1
        if result["outcome"] == "fault":
            error = " ".join(result["error"].split())
            common = f"{name}: {error.partition(':')[0]} at {result.get('where', '?')}"
            words = f"  {result['words'][:200]}" if "words" in result else ""
            tried = f"{group}/{name}/{number}{words}\n    {error[:150]}"
            self.faults.setdefault(common, []).append(tried)

    def lines(self) -> list[str]:
        """Write a table of counts, then each kind of fault with its first try."""
        outcomes = sorted({outcome for _, _, outcome in self.counts})
        names = sorted({(group, name) for group, name, _ in self.counts})
        rows = [["", *outcomes]] + [
            [f"{group}: {name}", *(str(self.counts[group, name, outcome]) for outcome in outcomes)]
            for group, name in names
        ]
        total = [str(sum(n for key, n in self.counts.items() if key[2] == o)) for o in outcomes]
        rows.append([f"all {sum(self.counts.values())}", *total])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
        found = [f"{len(tries)}× {common}\n    {tries[0]}" for common, tries in self.faults.items()]
        return [*table, *found, f"{len(self.faults)} kinds of fault"]


class Worker:
    """A process that makes tries, started anew when one hangs or kills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None

    def attempt(self, group: str, name: str, seed: str) -> dict[str, Any]:
        """Make a try; one that hangs or ends the process is a fault."""
        limit = HANG
        if self._process is None:
            self._start()
            limit = START
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([group, name, seed]) + "\n")
            self._process.stdin.flush()
            line = self._answer(self._process.pid, limit)
        except queue.Empty:
            self.close()
            return {"outcome": "fault", "error": f"took more than {limit:.0f} s"}
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            self.close()
            said = (self.folder / "stderr.txt").read_text(errors="replace")[-200:]
            return {"outcome": "fault", "error": f"the process ended with {code}: {said}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _answer(self, process: int, limit: float) -> str:
        """Wait for an answer, on a busy machine as long as the try has used less than its time."""
        begin = _used(process)
        for _ in range(BUSY):
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=limit)
            if _used(process) - begin >= limit:
                break
        raise queue.Empty

    def _start(self) -> None:
        environment = {
            **os.environ, "HOME": str(self.folder), "TMPDIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join(PATH), "HF_HUB_OFFLINE": "1",
            "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.fuzz.worker"]
        with (self.folder / "stderr.txt").open("w") as errors:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self._answers: queue.Queue[str] = queue.Queue()
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=_pass_on, args=(self._process.stdout, self._answers), daemon=True
        )
        self._reader.start()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            with self._process:  # waits for its end, and closes the pipes
                self._reader.join()
            self._process = None


def _used(process: int) -> float:
    """Return the seconds of a core that a process and its children have used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _pass_on(lines: IO[str], answers: "queue.Queue[str]") -> None:
    for line in lines:
        answers.put(line)
    answers.put("")


def plan(files: int, calls: int, seed: int, only: str = "") -> list[tuple[str, str, int]]:
    """List the tries: each kind as often as its weight says, the same for a seed."""
    from tests.fuzz.calls import heads, targets  # noqa: PLC0415  (imports torch)
    from tests.fuzz.kinds import KINDS  # noqa: PLC0415

    if only:
        group, *name, number = only.split("/")
        return [(group, "/".join(name), int(number))]
    drawn = random.Random(seed)
    kinds = drawn.choices(list(KINDS), [kind.weight for kind in KINDS.values()], k=files)
    names = [*targets(), *(f"head {name}" for name, _ in heads())]
    weights = [5 if name.startswith("head ") else 3 for name in names]
    tries = [("files", kind, number) for number, kind in enumerate(kinds)]
    called = drawn.choices(names, weights, k=calls)
    tries += [("calls", name, number) for number, name in enumerate(called)]
    drawn.shuffle(tries)
    return tries


def fuzz(
    files: int,
    calls: int,
    seconds: float,
    seed: int = 0,
    only: str = "",
    names: tuple[str, ...] = ("",),
    jobs: int = 1,
) -> Report:
    """Make so many tries, or as many as the time allows, in folders that are then removed.

    Args:
        files: damaged files.
        calls: calls with hostile arguments.
        seconds: when to stop.
        seed: decides all of it.
        only: the name of one try, to make it again.
        names: how the names of kinds and of public names begin that are tried.
        jobs: processes that make tries side by side.
    """
    from tests.fuzz.kinds import make_examples  # noqa: PLC0415  (imports torch)

    report, end = Report(), time.monotonic() + seconds
    tries = iter([t for t in plan(files, calls, seed, only) if t[1].startswith(names)])
    turn = threading.Lock()

    def work(folder: Path) -> None:
        worker = Worker(folder)
        try:
            while time.monotonic() < end:
                with turn:
                    group, name, number = next(tries, ("", "", 0))
                if not group:
                    break
                result = worker.attempt(group, name, f"{seed}/{group}/{name}/{number}")
                with turn:
                    report.add(group, name, number, result)
        finally:
            worker.close()

    with tempfile.TemporaryDirectory(prefix="lastlayer-fuzz-") as place:
        folders = [Path(place) / str(job) for job in range(jobs)]
        (folders[0] / "examples").mkdir(parents=True)
        make_examples(folders[0] / "examples")
        for folder in folders[1:]:
            shutil.copytree(folders[0], folder)
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(work, folders))
    return report


def main() -> None:
    """Fuzz as the options say; the code is 1 where there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="one try, by its name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    numbers = (options.files, options.calls, options.seconds, options.seed)
    report = fuzz(*numbers, options.only, jobs=options.jobs)
    print("\n".join(report.lines()))
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
