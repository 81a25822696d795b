"""Feeding heads that learn in one pass: the batches, the scores, and what streams share."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import card_of
from lastlayer.errors import OptionError
from lastlayer.evaluate.fleet import Member
from lastlayer.evaluate.one_pass import _Feeder, asked_after, feed, map_rows
from lastlayer.evaluate.pool import Pool, Rules, Schedule, Score, shuffled_batches
from lastlayer.heads import (
    Head,
    MeanHead,
    RandomRidgeHead,
    RandomSldaHead,
    make_head,
    make_map,
)
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.replay.training import ReplayRules

N_CLASSES, H = 6, 5
TASKS = tuple(torch.arange(600).view(3, 200))  # two classes each
ORDERS = ((0, 1, 2), (2, 0, 1), (1, 2, 0))
HEADS = ("mean", "median", "slda", "knn")
BEYOND = ("ridge", "random_ridge", "random_slda", "qda")


@pytest.fixture(scope="module")
def pool() -> Pool:
    generator = torch.Generator().manual_seed(0)
    centres = 1.5 * torch.randn(N_CLASSES, H, generator=generator)
    y = torch.arange(600) // 100
    test_y = torch.arange(240) % N_CLASSES
    z, test_z = (centres[c] + torch.randn(len(c), H, generator=generator) for c in (y, test_y))
    return Pool(z, y, test_z, test_y, N_CLASSES, test_group=test_y // 2)


def streams(*orders: tuple[int, ...]) -> list[Schedule]:
    return [Schedule(tuple(TASKS[t] for t in order), seed=s) for s, order in enumerate(orders)]


def by_hand(pool: Pool, stream: Schedule, head: Head, rules: Rules) -> Iterator[Tensor]:
    """Feed a stream as plainly as can be; give the right answers after each task."""
    for rows in stream.tasks:
        generator = torch.Generator().manual_seed(stream.seed)
        for positions in shuffled_batches(len(rows), rules.batch_size, generator):
            if len(positions) > 1:
                head.observe(pool.z[rows[positions]], pool.y[rows[positions]])
        yield head.predict(pool.test_z) == pool.test_y


@pytest.mark.parametrize("preset", ["exact", "paper"])
@pytest.mark.parametrize("name", HEADS)
def test_it_is_feeding_by_hand(pool: Pool, name: str, preset: str) -> None:
    rules = Rules(epochs=2, batch_size=33)
    for stream, score in zip(
        streams(*ORDERS), feed(pool, streams(*ORDERS), name, preset, rules), strict=True
    ):
        head = make_head(name, H, N_CLASSES, preset=preset)
        for task, right in enumerate(by_hand(pool, stream, head, rules)):
            by_class = torch.bincount(pool.test_y[right], minlength=N_CLASSES)
            for epoch in (1, 2):
                assert score.by_class[2 * task + epoch].equal(by_class)
                assert score.by_group[2 * task + epoch].equal(by_class.view(3, 2).sum(1))


@pytest.mark.parametrize("name", HEADS)
def test_before_training_it_cannot_predict(pool: Pool, name: str) -> None:
    (score,) = feed(pool, streams((0, 1, 2)), name, "exact", Rules(epochs=5))
    assert score.by_class.shape == (16, N_CLASSES)
    assert score.by_group.shape == (16, 3)
    assert (score.by_class[0] == -1).all()
    assert (score.by_group[0] == -1).all()
    assert (score.by_class[1:] >= 0).all()
    assert score.diverged == -1


@pytest.mark.parametrize("name", HEADS)
def test_a_stream_does_not_depend_on_its_neighbours(pool: Pool, name: str) -> None:
    together = feed(pool, streams(*ORDERS), name, "exact", Rules(epochs=1))
    for stream, score in zip(streams(*ORDERS), together, strict=True):
        (alone,) = feed(pool, [stream], name, "exact", Rules(epochs=1))
        assert score.by_class.equal(alone.by_class)


@pytest.mark.parametrize(
    ("name", "preset", "times"),
    [("mean", "exact", 1), ("mean", "paper", 1), ("slda", "exact", 1), ("slda", "paper", 3)],
)
def test_statistics_are_computed_once_for_all_orders(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, name: str, preset: str, times: int
) -> None:
    seen = 0
    observe = Head.observe

    def count(head: Head, z: Tensor, y: Tensor) -> None:
        nonlocal seen
        seen += len(z)
        observe(head, z, y)

    monkeypatch.setattr(Head, "observe", count)
    feed(pool, streams(*ORDERS), name, preset, Rules(epochs=1))
    assert seen == times * 600


def test_a_batch_of_one_is_skipped(pool: Pool) -> None:
    """The row left out depends on the seed, so such a task cannot be shared."""
    rows, seeds = torch.tensor([0, 100, 200]), (0, 1, 2, 3)
    scores = feed(
        pool, [Schedule((rows,), seed) for seed in seeds], "mean", "exact", Rules(batch_size=2)
    )
    for seed, score in zip(seeds, scores, strict=True):
        first = torch.randperm(3, generator=torch.Generator().manual_seed(seed))[:2]
        head = MeanHead(H, N_CLASSES)
        head.observe(pool.z[rows[first]], pool.y[rows[first]])
        right = head.predict(pool.test_z) == pool.test_y
        assert score.by_class[-1].equal(torch.bincount(pool.test_y[right], minlength=N_CLASSES))


def test_a_task_of_one_sample_teaches_nothing(pool: Pool) -> None:
    stream = Schedule((torch.tensor([7]), TASKS[0]))
    (score,) = feed(pool, [stream], "slda", "exact", Rules(epochs=1))
    assert (score.by_class[1] == -1).all()
    assert (score.by_class[2] >= 0).all()


def test_progress_counts_samples(pool: Pool) -> None:
    told: list[int] = []
    feed(pool, streams(*ORDERS), "mean", "paper", Rules(), on_task=told.append)
    assert told == [200] * 9


def test_scores_are_whole_numbers(pool: Pool) -> None:
    (score,) = feed(pool, streams((0, 1, 2)), "mean", "exact", Rules())
    assert isinstance(score, Score)
    assert score.by_class.dtype == score.by_group.dtype == torch.int64
    assert score.by_class[1:].sum(1).equal(score.by_group[1:].sum(1))


def with_map(pool: Pool, stream: Schedule, name: str) -> Head:
    """Make the head that a stream is fed to, with the map that all its orders share."""
    like = make_head(name, H, N_CLASSES)
    if not isinstance(like, MappedHead):
        return like
    rows = map_rows(stream.tasks)
    fitted = make_map(like.options["map"], H, like.options["width"]).fit(pool.z[rows])
    return make_head(name, H, N_CLASSES, like=fitted)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make heads behind a map narrow, to be fast."""
    for maker in (RandomRidgeHead, RandomSldaHead):
        defaults = {**maker.__init__.__kwdefaults__, "width": 30}
        monkeypatch.setattr(maker.__init__, "__kwdefaults__", defaults)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("memory", [1 << 29, 0, 20_000])  # all, none or some tasks are kept
@pytest.mark.parametrize("name", BEYOND)
def test_new_heads_are_fed_as_by_hand(pool: Pool, name: str, memory: int) -> None:
    rules = Rules(epochs=1, batch_size=33)
    scores = feed(pool, streams(*ORDERS), name, "exact", rules, memory=memory)
    for stream, score in zip(streams(*ORDERS), scores, strict=True):
        head = with_map(pool, stream, name)
        for task, right in enumerate(by_hand(pool, stream, head, rules)):
            by_class = torch.bincount(pool.test_y[right], minlength=N_CLASSES)
            assert score.by_class[task + 1].equal(by_class)


def test_the_map_is_the_same_for_all_orders() -> None:
    one, *others = (map_rows(stream.tasks) for stream in streams(*ORDERS))
    assert one.equal(torch.arange(600))
    assert all(one.equal(other) for other in others)
    long = Schedule((torch.arange(900, 2000), torch.arange(900).flip(0)))
    assert map_rows(long.tasks).equal(torch.arange(1000))


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("memory", [1 << 29, 0])
@pytest.mark.parametrize("name", ["slda", "random_ridge", "knn"])
def test_equal_sets_of_tasks_share_a_refresh(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, name: str, memory: int
) -> None:
    asked = 0
    count_right = _Feeder._count

    def count(feeder: _Feeder, answers: Callable[[], Tensor]) -> Tensor:
        nonlocal asked
        asked += 1
        return count_right(feeder, answers)

    monkeypatch.setattr(_Feeder, "_count", count)
    orders = ((0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 1, 2))
    feed(pool, streams(*orders), name, "exact", Rules(epochs=1), memory=memory)
    assert asked == len({frozenset(order[:n]) for order in orders for n in (1, 2, 3)})


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("memory", [1 << 29, 0])
def test_streams_of_other_rows_have_maps_of_their_own(pool: Pool, memory: int) -> None:
    halves = [Schedule(tuple(task[half::2] for task in TASKS)) for half in (0, 1)]
    rules = Rules(epochs=1, batch_size=33)
    together = feed(pool, halves, "random_ridge", "exact", rules, memory=memory)
    for stream, score in zip(halves, together, strict=True):
        (alone,) = feed(pool, [stream], "random_ridge", "exact", rules, memory=memory)
        assert score.by_class.equal(alone.by_class)


def test_unless_told_training_is_the_papers() -> None:
    assert Rules() == Rules(epochs=5, batch_size=264, skip_single=True)
    assert ReplayRules() == ReplayRules(epochs=5, batch_size=8, per_class=2000)
    assert Member("linear") == Member("linear", "none", None, 0, None, None)


@pytest.mark.slow  # half a gigabyte: the head of full width that the cards call slow
def test_a_head_that_is_slow_to_answer_answers_ten_times_in_a_long_stream(pool: Pool) -> None:
    """At those points as a head that is asked every time, and nothing in between."""
    long = Schedule(tuple(torch.arange(600).view(12, 50)))
    rules = Rules(epochs=2, batch_size=64)
    (score,) = feed(pool, [long], "random_slda", "exact", rules)
    asked = asked_after("random_slda", H, N_CLASSES, 12)
    assert asked == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    fixed = make_map("fourier", H, 2000).fit(pool.z[map_rows(long.tasks)])
    head = make_head("random_slda", H, N_CLASSES, like=fixed)
    for task, right in enumerate(by_hand(pool, long, head, rules)):
        after = score.by_class[2 * task + 1 : 2 * task + 3]
        if task in asked:
            assert (after == torch.bincount(pool.test_y[right], minlength=N_CLASSES)).all()
        else:
            assert (after == -1).all()
            assert (score.by_group[2 * task + 1 : 2 * task + 3] == -1).all()


@pytest.mark.parametrize("n_tasks", [1, 10, 11, 19, 20, 99, 1000])
def test_answers_are_spread_evenly_and_end_with_the_last_task(n_tasks: int) -> None:
    asked = asked_after("random_ridge", 64, 10, n_tasks)
    assert len(asked) == min(n_tasks, 10)
    assert asked[-1] == n_tasks - 1
    gaps = {b - a for a, b in pairwise([-1, *asked])}
    assert max(gaps) - min(gaps) <= 1
    assert asked_after("slda", 4096, 10, n_tasks) == list(range(n_tasks))


def test_a_head_that_takes_fewer_rows_is_refused_before_it_learns() -> None:
    rows = card_of("kernel_ridge").most_rows + 1  # type: ignore[operator]
    z, y = torch.zeros(1, H).expand(rows, H), torch.zeros(1, dtype=torch.int64).expand(rows)
    pool = Pool(z, y, z[:1], y[:1], n_classes=1)
    with pytest.raises(OptionError, match=f"takes at most {rows - 1} rows by default"):
        feed(pool, [Schedule((torch.arange(rows),), seed=0)], "kernel_ridge", "exact", Rules())
