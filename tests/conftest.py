"""What all tests share: the same examples every time, on one thread, however slow the machine."""

import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from lastlayer.heads.undo import AllOrNothing

settings.register_profile("lastlayer", deadline=None, derandomize=True)
settings.load_profile("lastlayer")

torch.set_num_threads(1)  # on tensors as small as these, threads only wait for one another

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
    assert not [block for block in _blocks if block.active]
    _blocks.clear()
