"""What all tests share: the same examples every time, on one thread, however slow the machine.

`make test` leaves out what is marked slow, makes 15 examples of each property, and fails where a
worker grows beyond LARGEST. `make test-all` makes what is marked slow, and every property with all
its examples.
"""

import resource
import sys
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import is_hypothesis_test, settings

import lastlayer as ll
from lastlayer.heads.undo import AllOrNothing

QUICK, ALL = "not slow", "slow"  # what make test and make test-all say with -m
LARGEST = 2.5e9  # bytes of a worker in the quick run: two of them beside a browser in 8 GB

settings.register_profile("all", deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("all"), max_examples=15)

torch.set_num_threads(1)  # on tensors as small as these, threads only wait for one another

HERE = "this process"
peaks = {HERE: 0}  # bytes, by worker
_blocks: "weakref.WeakSet[AllOrNothing]" = weakref.WeakSet()
_enter = AllOrNothing.__enter__


def _noted(block: AllOrNothing) -> None:
    _blocks.add(block)
    _enter(block)


AllOrNothing.__enter__ = _noted  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    """See that no change of a head is still under way after a test: it would be undone later."""
    yield
    left = [block for block in _blocks if block.active]
    _blocks.clear()
    assert not left


@pytest.fixture(scope="session")
def cifar10() -> ll.Features:
    """Return every 25th training row and every 5th test row of the bundled features, 2,000 each."""
    data = ll.load_features("cifar10")
    some = {
        part: ll.FeatureSet(rows.z[::step], {name: y[::step] for name, y in rows.labels.items()})
        for part, rows, step in (("train", data.train, 25), ("test", data.test, 5))
    }
    return replace(data, **some, fingerprint="")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the renderer out of reports."""
    from undrawn import leave_out_the_renderer  # noqa: PLC0415  (most tests need no charts)

    leave_out_the_renderer(monkeypatch)


def pytest_configure(config: pytest.Config) -> None:
    """Make few examples of each property in the quick run."""
    settings.load_profile("quick" if config.option.markexpr == QUICK else "all")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let `make test-all` make every property again, with all its examples."""
    if config.option.markexpr == ALL:
        for item in items:
            if is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[object]:
    """Note the memory around each test: one of them lets the system forget its peak."""
    note_peak()
    try:
        return (yield)
    finally:
        note_peak()


def note_peak() -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peaks[HERE] = max(peaks[HERE], peak if sys.platform == "darwin" else 1024 * peak)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's peak when it ends."""
    if "peak" in getattr(node, "workeroutput", {}):
        peaks[node.gateway.id] = node.workeroutput["peak"]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's peak over; fail where one of the quick run was too large."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = peaks[HERE]
        return
    too_large = max(peaks.values()) > LARGEST and session.config.option.markexpr == QUICK
    if too_large and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the largest peak."""
    largest = max(peaks, key=peaks.__getitem__)
    more = f": more than {LARGEST / 1e9} GB" if peaks[largest] > LARGEST else ""
    terminalreporter.write_line(f"peak memory {peaks[largest] / 1e9:.2f} GB in {largest}{more}")
