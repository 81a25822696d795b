"""A run of pytest inside a forked child: which tests reach which functions, which find a fault."""

import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

OPTIONS = (
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
    "-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning",
)  # fmt: skip
MEMORY = 8 << 30  # bytes of a child: a fault may ask for all there are
PATIENCE = 20.0, 10.0  # seconds of a test on its core, and so many times what it took before
# How a run may end. Failures are noted, those of collection too (which interrupt it); what else
# makes one fail is its memory, which many tests share here.
ENDED = (
    pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.INTERRUPTED,
)  # fmt: skip
PROCESSES = {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"}
ANYTHING = "*"  # what a test may reach that starts processes


class Watch:
    """A plugin that notes how each test went, how long it took, and which functions it called."""

    def __init__(self, source: Path) -> None:
        self._source = f"{source}{os.sep}"
        self.tests: dict[str, dict[str, Any]] = {}
        self.shared: dict[str, set[str]] = {}  # by file: what the fixtures of its tests called
        self._codes: dict[int, CodeType] = {}
        self._processes = False
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: object) -> None:
        self._processes = self._processes or event in PROCESSES

    def _trace(self, frame: FrameType, _: str, __: object) -> None:
        """Note a call; that it returns nothing spares the lines of the function."""
        self._codes[id(frame.f_code)] = frame.f_code

    @contextlib.contextmanager
    def _noting(self, into: set[str]) -> Iterator[None]:
        self._codes, self._processes = {}, False
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            for code in self._codes.values():
                if code.co_filename.startswith(self._source):
                    module = code.co_filename.removeprefix(self._source)
                    into.add(f"{module}:{code.co_firstlineno}")
            if self._processes:
                into.add(ANYTHING)

    def _test(self, name: str) -> dict[str, Any]:
        new = {"failed": False, "seconds": 0.0, "reach": set()}
        return self.tests.setdefault(name, new)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Note what is called while modules are imported, decorators among it."""
        with self._noting(self.shared.setdefault(collector.nodeid.split("::")[0], set())):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Note what fixtures call: some are made once for all tests of a file."""
        with self._noting(self.shared.setdefault(item.nodeid.split("::")[0], set())):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Note what the test calls, and how long that takes."""
        begin = time.monotonic()
        try:
            with self._noting(self._test(item.nodeid)["reach"]):
                return (yield)
        finally:
            self._test(item.nodeid)["seconds"] = time.monotonic() - begin

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self._test(report.nodeid)["failed"] = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self._test(report.nodeid)["failed"] = True

    def result(self) -> dict[str, Any]:
        """Return each test with all that it reaches."""
        for name, test in self.tests.items():
            test["reach"] = sorted(test["reach"] | self.shared.get(name.split("::")[0], set()))
        return self.tests


class Hunt:
    """A plugin that makes chosen tests only, in the order given, and notes the first that fails.

    A test that computes much longer than it did without the fault ends the process: by the time
    on its core, since a busy machine makes every test slow.
    """

    def __init__(self, chosen: dict[str, float]) -> None:
        self._seconds = chosen
        self._rank = {name: rank for rank, name in enumerate(chosen)}
        self.found = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Give a test its time."""
        limit = PATIENCE[0] + PATIENCE[1] * self._seconds[item.nodeid]
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the chosen tests, quickest first."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._rank),
            key=lambda item: self._rank[item.nodeid],
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot even be imported."""
        if report.failed:
            self.found = self.found or report.nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self.found = self.found or report.nodeid

    def result(self) -> str:
        """Return the test that found a fault, or nothing."""
        return self.found


def watch(tree: Path, files: list[str], marked: str) -> dict[str, Any]:
    """Run files of tests as they are, those that pytest selects by -m."""
    plugin = Watch(tree / "src" / "lastlayer")
    code = pytest.main([*OPTIONS, "-m", marked, *files], plugins=[plugin])
    if code not in ENDED:
        raise RuntimeError(f"pytest ended with {code!r}")
    return plugin.result()


def hunt(files: list[str], chosen: dict[str, float], marked: str) -> str:
    """Run chosen tests, given with their seconds, until one fails; return its name."""
    plugin = Hunt(chosen)
    code = pytest.main([*OPTIONS, "-x", "-m", marked, *files], plugins=[plugin])
    return plugin.result() or ("" if code in ENDED else f"pytest ended with {code!r}")


def start(tree: Path, task: Callable[[], Any]) -> int:
    """Do a task in a child that finds lastlayer in a tree of its own; what it gives is in JSON."""
    (tree / "result.json").unlink(missing_ok=True)
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()  # so that what it starts can be ended with it
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        with (tree / "said.txt").open("w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        os.chdir(tree)
        (tree / "tmp").mkdir(exist_ok=True)
        os.environ |= {
            "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "HOME": str(tree / "tmp"),
            "TMPDIR": str(tree / "tmp"),
        }  # fmt: skip
        sys.path[:0] = [str(tree / "src"), str(tree)]
        for name in [n for n in sys.modules if n.split(".")[0] in ("tests", "lastlayer")]:
            del sys.modules[name]
        (tree / "result.json").write_text(json.dumps(task()))
        status = 0
    except BaseException:  # whatever it is, the parent is to read of it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
