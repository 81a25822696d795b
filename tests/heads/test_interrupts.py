"""An interrupt at any moment: a head is as before the change or after it, and nothing is left."""

import copy
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
import torch
from streams import blobs, make_head, snapshot
from threadpoolctl import threadpool_info
from torch import Tensor

from lastlayer.heads import Head
from lastlayer.heads.undo import AllOrNothing

Z, Y = blobs(n_per_class=400)
NAMES = ["mean", "slda", "random_slda", "ridge", "qda", "knn", "median", "cosine+single"]
FEW = [("slda", 100), ("random_slda", 50), ("knn", 50)]
MANY = [pytest.param(name, 1000, marks=pytest.mark.slow) for name in NAMES]


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt when the time is up, as Ctrl-C does."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def changes(head: Head) -> dict[str, Callable[[Head], object]]:
    found: dict[str, Callable[[Head], object]] = {
        "a row": lambda one: one.observe(Z[:1], Y[:1]),
        "many rows": lambda one: one.observe(Z, Y),
        "new classes": lambda one: one.observe(Z, Y + 2),
        "batches": lambda one: one.observe_all([(Z[:90], Y[:90]), (Z[90:], Y[90:] + 1)]),
        "an answer": lambda one: one.predict(Z[:3]),
    }
    if head.abilities.forgets:
        found["forget"] = lambda one: one.forget(Z[:50], Y[:50])
    return found


def state(head: Head) -> dict[str, Tensor]:
    return snapshot(head) | {"answers": head(Z[:20])}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def process() -> tuple[object, ...]:
    blas = sorted((one["filepath"], one["num_threads"]) for one in threadpool_info())
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads(), blas


def is_free(head: Head) -> bool:
    """Return whether another thread could use it."""
    found = []

    def look() -> None:
        if head.lock.acquire(blocking=False):
            head.lock.release()
            found.append(True)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return bool(found)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer of POSIX")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one in a __del__
@pytest.mark.parametrize(("name", "interrupts"), [*FEW, *MANY])
def test_an_interrupt_at_any_moment_leaves_nothing_half_done(name: str, interrupts: int) -> None:
    chance = random.Random(name)
    untouched = make_head(name, 4)
    for _ in range(3):
        untouched.observe(Z, Y)
    untouched.observe(Z[:2], Y[:2])  # they may wait
    around = process()
    known = {}
    for step, change in changes(untouched).items():
        before, after = copy.deepcopy(untouched), copy.deepcopy(untouched)
        change(copy.deepcopy(untouched))  # once to warm up
        begin = time.perf_counter()
        change(after)
        known[step] = time.perf_counter() - begin, state(before), state(after)
    struck = 0
    for _ in range(interrupts):
        step, change = chance.choice(list(changes(untouched).items()))
        seconds, before_it, after_it = known[step]
        head = copy.deepcopy(untouched)
        try:
            with interrupted_after(chance.random() * 1.2 * seconds + 1e-6):
                change(head)
        except KeyboardInterrupt:
            struck += 1
        now = state(head)
        assert same(now, before_it) or same(now, after_it), step
        assert head._under_way is None
        assert is_free(head)
        assert process() == around
    assert struck > interrupts / 10


def test_what_an_interrupted_way_out_has_left_is_undone_by_the_next_use() -> None:
    """It may strike before ``__exit__`` begins: then the block stays, and the next use ends it."""
    head = make_head("slda", 4)
    head.observe(Z, Y)
    before = state(head)
    block = AllOrNothing(head)
    block.__enter__()
    head._take_checked(Z + 1, Y)
    assert block.active
    assert same(state(head), before)
    assert not block.active
    head.observe(Z + 1, Y)
    twice = make_head("slda", 4)
    twice.observe_all([(Z, Y), (Z + 1, Y)])
    torch.testing.assert_close(head(Z), twice(Z))


def test_an_undoing_that_is_itself_interrupted_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = make_head("mean", 4)
    head.observe(Z, Y)
    before = state(head)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        yield Z + 1, Y
        raise ValueError

    def interrupt(self: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("lastlayer.heads.undo.Log.put_back", interrupt)
        with pytest.raises(KeyboardInterrupt):
            head.observe_all(batches())
    assert head._under_way is not None
    assert same(state(head), before)
    assert head._under_way is None
