"""Several threads use one head: an answer reflects some whole number of changes."""

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from streams import blobs, make_head

from lastlayer.heads import Head

Z, Y = blobs(n_per_class=200)
QUERIES = blobs(seed=1)[0][:30] * 0.5
NAMES = ["mean", "slda", "ridge", "qda", "random_slda", "random_ridge", "knn", "median", "linear"]
ROUNDS, ROWS, READERS = 25, 4, 3
FIRST = ["slda", "knn"]  # the others are as these but for what they compute
every_name = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FIRST else [pytest.mark.slow]) for n in NAMES]
)


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Let threads take turns so often that what is not guarded goes wrong."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def learned(name: str, rounds: int) -> Head:
    head = make_head(name, 4)
    head.observe(Z[:300], Y[:300])
    for one in range(rounds):
        learn(head, one)
    return head


def learn(head: Head, one: int) -> None:
    rows = slice(300 + one * ROWS, 300 + (one + 1) * ROWS)
    head.observe(Z[rows], Y[rows])


READ: dict[str, Callable[[Head], torch.Tensor]] = {
    "forward": lambda head: head(QUERIES),
    "probabilities": lambda head: head.probabilities(QUERIES),
    "novelty": lambda head: head.novelty(QUERIES),
    "a copy": lambda head: copy.deepcopy(head)(QUERIES),
    "a pickle": lambda head: pickle.loads(pickle.dumps(head))(QUERIES),
    "a module": lambda head: head.as_module(dtype=torch.float64)(QUERIES.double())[1],
}


@every_name
def test_every_answer_is_that_of_a_whole_number_of_changes(name: str) -> None:
    """While one thread learns, the others ask in every way."""
    known = {way: [read(learned(name, k)) for k in range(ROUNDS + 1)] for way, read in READ.items()}
    head = learned(name, 0)
    done = threading.Event()

    def ask(reader: int) -> list[str]:
        wrong, asked = [], 0
        ways = list(READ)[reader % 2 :: 2]
        while not (done.is_set() and asked):
            for way in ways:
                got = READ[way](head)
                if not any(torch.allclose(got, one, rtol=1e-9) for one in known[way]):
                    wrong.append(way)
                asked += 1
        return wrong if asked else ["never asked"]

    with ThreadPoolExecutor(READERS) as pool:
        asked = [pool.submit(ask, reader) for reader in range(READERS)]
        try:
            for one in range(ROUNDS):
                learn(head, one)
                READ["forward"](head)
        finally:
            done.set()
    assert [reader.result() for reader in asked] == [[]] * READERS
    torch.testing.assert_close(head(QUERIES), known["forward"][-1], rtol=1e-9, atol=1e-9)


@every_name
def test_no_row_is_lost_or_counted_twice(name: str) -> None:
    head = learned(name, 0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: learn(head, one), range(ROUNDS)))
    if head.class_counts is None:  # trained by gradient: one step for each batch
        assert int(head.state_dict()["steps"]) == ROUNDS + 1
        return
    rows = 300 + ROUNDS * ROWS
    assert head.class_counts.tolist() == Y[:rows].bincount().tolist()
    torch.testing.assert_close(head(QUERIES), learned(name, ROUNDS)(QUERIES), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["mean", "slda", "random_slda", "knn"])
def test_learning_and_forgetting_side_by_side_leave_the_rest(name: str) -> None:
    head, expected = learned(name, ROUNDS), learned(name, 0)
    more = slice(300 + ROUNDS * ROWS, 300 + 2 * ROUNDS * ROWS)
    expected.observe(Z[more], Y[more])

    def change(one: int) -> None:
        if one % 2:
            learn(head, ROUNDS + one // 2)
        else:
            rows = slice(300 + one // 2 * ROWS, 300 + (one // 2 + 1) * ROWS)
            head.forget(Z[rows], Y[rows])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(2 * ROUNDS)))
    assert head.class_counts is not None
    assert expected.class_counts is not None
    assert torch.equal(head.class_counts, expected.class_counts)
    torch.testing.assert_close(head(QUERIES), expected(QUERIES), rtol=1e-6, atol=1e-8)


def test_two_heads_can_be_merged_with_each_other_at_once() -> None:
    """Each thread takes both locks: in one order, or they would wait for each other for good."""
    a, b = learned("slda", 3), learned("slda", 5)
    expected = a.merge(b)(QUERIES)
    with ThreadPoolExecutor(2) as pool:
        merged = list(pool.map(lambda i: a.merge(b) if i % 2 else b.merge(a), range(50)))
    for one in merged:
        torch.testing.assert_close(one(QUERIES), expected, rtol=1e-9, atol=1e-9)
