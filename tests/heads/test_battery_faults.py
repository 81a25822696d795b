"""The battery, third part: an error at any line of a change leaves every head as it was."""

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from streams import (
    EVERY_HEAD,
    H,
    assert_same_bits,
    blobs,
    every_head,
    every_kind,
    snapshot,
    trained,
)

from lastlayer import heads
from lastlayer.errors import DivergedError
from lastlayer.heads import Head, make_head

ROOM = str(Path(heads.__file__).parent)
UNDOING = str(Path(heads.__file__).with_name("undo.py"))
Z, Y = blobs()


class Fault:
    """Raises an error at the n-th line that runs in the heads' own code, undoing excepted."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error, self.lines = at, error, 0

    def __enter__(self) -> "Fault":
        self.before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)

    def _call(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        return self._line if name.startswith(ROOM) and name != UNDOING else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise self.error
        return self._line


def changes(head: Head) -> dict[str, Callable[[Head], object]]:
    """Give every way to change a head; new classes arrive, and memories are cut."""
    wide, labels = torch.cat([Z, Z + 1]), torch.cat([Y, Y + 3])
    other = copy.deepcopy(head)
    other.observe(Z, Y + 4)
    state = other.state_dict()
    found: dict[str, Callable[[Head], object]] = {
        "small": lambda one: one.observe(Z[:1], Y[:1]),
        "new class": lambda one: one.observe(wide, labels),
        "many": lambda one: one.observe(wide.repeat(10, 1), labels.repeat(10)),
        "load": lambda one: one.load_state_dict(state),
    }
    if head.abilities.forgets:
        found["forget"] = lambda one: one.forget(Z[:7], Y[:7])
    if head.abilities.forgets_class:
        found["forget class"] = lambda one: one.forget_class(1)
    return found


def waiting(head: Head) -> Head:
    """Give a copy that has two more rows, which may still wait: they are part of what it knows."""
    head = copy.deepcopy(head)
    head.observe(Z[:2], Y[:2])
    return head


@every_kind
def test_an_error_at_any_line_leaves_the_head_as_it_was(name: str, preset: str) -> None:
    untouched = trained(name, preset)
    first = EVERY_HEAD.index((name, preset))  # each head is tried at other lines
    points = 10 if untouched.passes else 4
    expected = waiting(untouched)
    bits, answers = snapshot(expected), expected(Z[:3])
    for step, change in changes(untouched).items():
        for one in (waiting(untouched), waiting(untouched)):  # once to warm up
            with Fault(-1, MemoryError()) as counting:
                change(one)
        stride = max(1, counting.lines // points)
        # At the last line all is done, and only the way back is left: through three functions
        # where a small batch was put aside.
        late = 3 if step == "small" and "statistics" in dict(untouched.named_modules()) else 1
        for at in range(1 + first % stride, counting.lines + 1 - late, stride):
            head = waiting(untouched)
            error = KeyboardInterrupt if at % 2 else MemoryError
            with pytest.raises(error), Fault(at, error()):
                change(head)
            assert_same_bits(snapshot(head), bits)
            assert torch.equal(head(Z[:3]), answers)


@every_head
def test_a_class_that_does_not_fit_into_memory_is_refused_whole(
    name: str, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for allocate in ("cat", "zeros", "empty_like", "clone"):
        head = trained(name, preset)
        before = snapshot(head)

        def full(*_: object, **__: object) -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(torch, allocate, full)
            try:
                head.observe(Z, Y + 50)
            except MemoryError:
                assert head.n_classes == 3
        if head.n_classes == 3:
            assert_same_bits(snapshot(head), before)
        head.observe(Z, Y)
        assert head(Z).shape[0] == len(Z)


@pytest.mark.parametrize("name", ["linear", "cosine+single"])
def test_a_step_that_diverges_leaves_the_head_as_it_was(name: str) -> None:
    head = make_head(name, H, lr=1e38)
    head.observe(Z[:1], Y[:1] * 0)
    before = snapshot(head)
    with pytest.raises(DivergedError):
        head.observe(Z * 1e10, Y + 1)
    assert_same_bits(snapshot(head), before)


@every_head
def test_a_state_that_does_not_fit_leaves_the_head_as_it_was(name: str, preset: str) -> None:
    head = trained(name, preset)
    before, expected = snapshot(head), head(Z)
    state = trained(name, preset, n_classes=5).state_dict()
    for missing in list(state):
        part = {key: value for key, value in state.items() if key != missing}
        try:
            copy.deepcopy(head).load_state_dict(part)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                head.load_state_dict(part)
            assert_same_bits(snapshot(head), before)
            assert torch.equal(head(Z), expected)
    with pytest.raises(RuntimeError):
        head.load_state_dict({**state, "seen": torch.zeros(2, 2, dtype=torch.bool)})
    assert_same_bits(snapshot(head), before)
    assert torch.equal(head(Z), expected)
