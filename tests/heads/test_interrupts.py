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
from lastlayer.heads.changes import take
from lastlayer.heads.statistics.mean import MeanHead
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
    another = copy.deepcopy(head)
    another.observe(Z + 1, Y)
    other = another.state_dict()
    found: dict[str, Callable[[Head], object]] = {
        "a row": lambda one: one.observe(Z[:1], Y[:1]),
        "many rows": lambda one: one.observe(Z, Y),
        "new classes": lambda one: one.observe(Z, Y + 2),
        "batches": lambda one: one.observe_all([(Z[:90], Y[:90]), (Z[90:], Y[90:] + 1)]),
        "an answer": lambda one: one.predict(Z[:3]),
        "counts": lambda one: one.class_counts,
        "a state": lambda one: one.state_dict(),
        "a copy": copy.deepcopy,
        "merge": lambda one: one.merge(one) if one.abilities.merges else None,
        "load": lambda one: one.load_state_dict(other),
        "calibrate": lambda one: one.calibrate(Z[:90] + 0.1, Y[:90]),
    }
    if head.abilities.forgets:
        found["forget"] = lambda one: one.forget(Z[:50], Y[:50])
    if head.abilities.forgets_class:
        found["forget class"] = lambda one: one.forget_class(1)
    return found


def state(head: Head) -> dict[str, Tensor]:
    return snapshot(head) | {"answers": head(Z[:20])}


def later(head: Head) -> dict[str, Tensor]:
    """Return the state after one more row: it must not stand where others wait."""
    head.observe(Z[5:6], Y[5:6])
    return state(head)


def waiting(head: Head) -> Head:
    """Return a copy with two more rows, which wait if they can; a copy alone has none."""
    head = copy.deepcopy(head)
    head.observe(Z[:2], Y[:2])
    return head


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def alike(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Return whether two states are the same but for rows that were added up in other batches."""
    return a.keys() == b.keys() and all(
        a[name].shape == b[name].shape and torch.allclose(a[name], b[name], rtol=1e-9, atol=1e-12)
        for name in a
        if name != "statistics.wear" and not name.endswith(".wear")
    )


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
    around = process()
    steps = changes(untouched)
    known = {}
    for step, change in steps.items():
        seconds = []
        for _ in range(3):  # the first warms up
            after = waiting(untouched)
            begin = time.perf_counter()
            change(after)
            seconds.append(time.perf_counter() - begin)
        known[step] = min(seconds), later(waiting(untouched)), later(after)
    struck = 0
    for _ in range(interrupts):
        step, change = chance.choice(list(steps.items()))
        least, before_it, after_it = known[step]
        head = waiting(untouched)
        try:
            with interrupted_after(chance.random() * 1.2 * least + 1e-6):
                change(head)
        except KeyboardInterrupt:
            struck += 1
        now = later(head)
        assert alike(now, before_it) or alike(now, after_it), step
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
    take(head, Z + 1, Y)
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


@pytest.mark.parametrize("name", ["mean", "slda", "random_slda"])
@pytest.mark.parametrize("verb", ["class_counts", "state_dict", "deepcopy", "forget"])
def test_rows_that_wait_survive_an_interrupted_fold(
    name: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt strikes as the fold ends; rows that come then may not take their place."""
    head, expected = make_head(name, 4), make_head(name, 4)
    for one in (head, expected):
        one.observe(Z, Y)
        one.observe(Z[:2], Y[:2])
    leave = AllOrNothing.__exit__

    def interrupt(self: AllOrNothing, *_: object) -> None:
        monkeypatch.setattr(AllOrNothing, "__exit__", leave)
        raise KeyboardInterrupt

    monkeypatch.setattr(AllOrNothing, "__exit__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        {
            "class_counts": lambda: head.class_counts,
            "state_dict": head.state_dict,
            "deepcopy": lambda: copy.deepcopy(head),
            "forget": lambda: head.forget(Z[:5], Y[:5]),
        }[verb]()
    for one in (head, expected):
        one.observe(Z[5:9], Y[5:9])
    assert head.class_counts.tolist() == expected.class_counts.tolist()
    torch.testing.assert_close(head(Z), expected(Z), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_done_in_inference_mode_can_be_changed_later(name: str) -> None:
    head = make_head(name, 4)
    head.observe(Z, Y)
    head.observe(Z[:3], Y[:3])
    with torch.inference_mode():
        _ = head.class_counts
        head.state_dict()
        copied = copy.deepcopy(head)
        head.observe(Z[:3], Y[:3])
        head.double()
        head.predict(Z)
    for one in (head, copied):
        for _ in range(3):
            one.observe(Z[:700], Y[:700])
            one.observe(Z[:3], Y[:3])
            one.predict(Z[:5])


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_has_gradients_whatever_was_loaded_or_learned(name: str) -> None:
    head, other = make_head(name, 4), make_head(name, 4)
    head.observe(Z.clone().requires_grad_(), Y)
    state = {
        key: value.clone().requires_grad_() if value.is_floating_point() else value
        for key, value in head.state_dict().items()
    }
    for options in ({}, {"assign": True}):
        other.load_state_dict(state, **options)
        other.observe(Z, Y)
        assert not other(Z.clone().requires_grad_()).requires_grad
        assert not any(value.requires_grad for value in other.state_dict().values())


def test_a_head_with_parameters_learns_and_answers_without_gradients() -> None:
    """Ours have buffers; one of a user's may have parameters."""

    class Counting(MeanHead):
        def __init__(self, in_features: int) -> None:
            super().__init__(in_features)
            self.scale = torch.nn.Parameter(torch.ones(1))

        def _learn(self, z: Tensor, y: Tensor) -> None:
            self.scale += 1
            super()._learn(z, y)

        def _logits(self, z: Tensor) -> Tensor:
            return super()._logits(z) * self.scale

    head = Counting(4)
    head.observe(Z, Y)
    assert head.scale.tolist() == [2.0]
    assert not head(Z).requires_grad
    assert torch.is_grad_enabled()
