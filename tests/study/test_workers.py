"""Work in threads: everything once, one core each, and an end when nobody takes any more."""

from collections.abc import Iterator
from threading import Event
from time import sleep

import pytest
import torch

from lastlayer.study.execute import as_done


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_piece_comes_out_once(threads: int) -> None:
    assert sorted(as_done(lambda x: x * x, range(9), threads)) == [x * x for x in range(9)]
    assert torch.get_num_threads() == 3


def test_each_thread_has_one_core() -> None:
    assert set(as_done(lambda _: torch.get_num_threads(), range(4), threads=2)) == {1}
    assert set(as_done(lambda _: torch.get_num_threads(), range(4), threads=1)) == {3}


def test_what_is_ready_does_not_wait() -> None:
    slow = Event()
    done = as_done(lambda x: x or slow.wait(5), [0, 1], threads=2)
    assert next(done) == 1
    slow.set()
    assert next(done) is True


def test_who_stops_taking_stops_the_work() -> None:
    seen: list[int] = []

    def slowly(piece: int) -> None:
        sleep(0.001)
        seen.append(piece)

    done = as_done(slowly, range(1000), threads=2)
    next(done)
    done.close()
    assert len(seen) < 1000
    assert torch.get_num_threads() == 3


def test_an_error_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        list(as_done(lambda x: 1 // x, [1, 0], threads=2))
    assert torch.get_num_threads() == 3
