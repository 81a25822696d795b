"""A member of a fleet is trained as it would be alone, whatever its neighbours do."""

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lastlayer.errors import OptionError
from lastlayer.evaluate import fleet as fleet_module
from lastlayer.evaluate.costs import member_bytes
from lastlayer.evaluate.fleet import (
    Job,
    Member,
    Stepper,
    epoch_of_batches,
    launch,
    plan,
    train_fleet,
)
from lastlayer.evaluate.pool import Pool, Rules, Schedule
from lastlayer.heads.head import Preset
from lastlayer.layers import LAYERS, MASKS

COMBINATIONS = [(layer, mask) for layer in LAYERS for mask in MASKS]
RULES = Rules(epochs=2, batch_size=16)


def make_pool(n: int = 120, h: int = 6, n_classes: int = 4) -> Pool:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % n_classes
    z = 2 * torch.randn(n_classes, h, generator=generator)[y] + torch.randn(
        n, h, generator=generator
    )
    return Pool(z, y, z[::2] + 0.5, y[::2], n_classes, y[::2] // 2)


def two_tasks(pool: Pool, seed: int, flip: bool = False) -> Schedule:
    first, second = (pool.y < 2).nonzero()[:, 0], (pool.y >= 2).nonzero()[:, 0][:-7]
    return Schedule((second, first) if flip else (first, second), seed)


@pytest.fixture
def _doubles() -> Iterator[None]:
    """Compare in float64: float32 drifts apart by its rounding, on each CPU in its own way."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_doubles")
@pytest.mark.parametrize("preset", ["paper", "exact"])
def test_a_member_does_not_depend_on_its_neighbours(preset: Preset) -> None:
    pool = make_pool()
    streams = [two_tasks(pool, seed, flip=seed % 2 == 1) for seed in range(4)]
    members = [
        [Member(layer, mask, 0.05 * (s + 1), s) for layer, mask in COMBINATIONS] for s in range(4)
    ]
    together = train_fleet(pool, streams, members, preset, RULES)
    for s in range(4):
        for k in range(len(COMBINATIONS)):
            alone = train_fleet(pool, [streams[s]], [[members[s][k]]], preset, RULES)[0][0]
            assert torch.equal(together[s][k].by_class, alone.by_class)
            assert torch.equal(together[s][k].by_group, alone.by_group)


def test_a_long_stream_is_scored_at_the_ends_of_its_tasks() -> None:
    """Its tasks are as those of a shorter one, all of whose epochs are scored."""
    pool = make_pool()
    tasks = pool.y.argsort().view(4, 30).repeat(17, 1)
    long, short = Schedule(tuple(tasks[:65])), Schedule(tuple(tasks[:64]))
    (ends,), (all_epochs,) = (
        train_fleet(pool, [stream], [[Member("linear")]], "paper", RULES)[0]
        for stream in (long, short)
    )
    assert (all_epochs.by_class >= 0).all()
    assert ends.by_class[2:129:2].equal(all_epochs.by_class[2::2])
    assert (ends.by_class[1::2] == -1).all()
    assert (ends.by_class[::2] >= 0).all()


def train_weights(pool: Pool, streams: list[Schedule], members: list[list[Member]]) -> torch.Tensor:
    fleet = launch(pool, members, "paper")
    take_step = Stepper(fleet, pool)
    generators = [torch.Generator().manual_seed(stream.seed) for stream in streams]
    with torch.no_grad():
        for batch in epoch_of_batches(streams, 0, RULES, generators, pool.z.device):
            take_step(*batch)
    return fleet.parameters["weight"]


@pytest.mark.usefixtures("_doubles")
def test_weights_alone_and_among_a_thousand() -> None:
    pool = make_pool()
    stream = Schedule((torch.arange(120),), 3)
    crowd = [Member(*COMBINATIONS[i % 15], None, i) for i in range(1005)]
    crowd.sort(key=lambda member: (member.layer, member.mask))
    among = train_weights(pool, [stream], [crowd])[0]
    for i in (0, 400, 1004):
        alone = train_weights(pool, [stream], [[crowd[i]]])[0, 0]
        torch.testing.assert_close(among[i], alone, rtol=1e-9, atol=1e-9)
    assert torch.equal(among, train_weights(pool, [stream], [crowd])[0])


@pytest.mark.usefixtures("_doubles")
def test_a_diverging_member_is_marked_and_hurts_nobody() -> None:
    pool = make_pool()
    stream = two_tasks(pool, 0)
    calm = [Member("linear", "none", 0.1, s) for s in range(3)]
    wild = Member("linear", "none", 1e308, 9)
    alone = train_fleet(pool, [stream], [calm], "paper", RULES)[0]
    *with_wild, lost = train_fleet(pool, [stream], [[*calm, wild]], "paper", RULES)[0]
    assert lost.diverged >= 0
    assert (lost.by_class[1:] == -1).all()
    assert (lost.by_class[0] >= 0).all()
    for expected, got in zip(alone, with_wild, strict=True):
        assert got.diverged == -1
        assert torch.equal(expected.by_class, got.by_class)


def test_scores_count_right_answers_by_class_and_by_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fleet_module.EVALUATE, "cpu", 64)  # many chunks
    pool = make_pool()
    score = train_fleet(pool, [two_tasks(pool, 0)], [[Member("weight_norm")]], "paper", RULES)[0][0]
    assert score.by_class.shape == (1 + 2 * 2, 4)
    assert score.by_group.shape == (1 + 2 * 2, 2)
    assert torch.equal(score.by_class.sum(1), score.by_group.sum(1))
    assert score.by_class[-1].sum() > 0.6 * len(pool.test_y)


def test_ties_go_to_the_lowest_class() -> None:
    scores = torch.tensor([[1.0, 0.0, 2.0], [1.0, 0.0, 1.0], [0.0, 0.0, 2.0]])[None, None]
    right = fleet_module._right(scores, torch.tensor([1, 0, 0]))
    assert right[0, 0].tolist() == [False, True, True]
    beside_lost = torch.cat([scores, torch.full_like(scores, torch.nan)], dim=1)
    assert fleet_module._right(beside_lost, torch.tensor([1, 0, 0]))[0, 0].tolist() == [
        False,
        True,
        True,
    ]


def test_before_it_has_seen_a_class_an_exact_head_cannot_predict() -> None:
    pool = make_pool()
    score = train_fleet(pool, [two_tasks(pool, 0)], [[Member("cosine")]], "exact", RULES)[0][0]
    assert (score.by_class[0] == -1).all()
    assert (score.by_class[1:] >= 0).all()


def test_a_batch_of_one_is_skipped_by_the_papers_rule() -> None:
    stream, generator = Schedule((torch.arange(33),), 0), torch.Generator().manual_seed(0)
    device = torch.device("cpu")
    paper = epoch_of_batches([stream], 0, Rules(batch_size=16), [generator], device)
    assert [rows.shape[1] for rows, _ in paper] == [16, 16]
    every = Rules(batch_size=16, skip_single=False)
    assert [
        rows.shape[1] for rows, _ in epoch_of_batches([stream], 0, every, [generator], device)
    ] == [
        16,
        16,
        1,
    ]


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any),
    batch_size=st.integers(1, 4),
    skip_single=st.booleans(),
)
def test_each_stream_gets_its_own_batches_and_shares_of_one(
    sizes: list[int], batch_size: int, skip_single: bool
) -> None:
    """However unequal streams are, a batch of any size is an average over its own samples."""
    streams = [Schedule((torch.arange(n) + 1,), s) for s, n in enumerate(sizes)]
    rules = Rules(batch_size=batch_size, skip_single=skip_single)
    generators = [torch.Generator().manual_seed(stream.seed) for stream in streams]
    device = torch.device("cpu")
    met: list[list[int]] = [[] for _ in sizes]
    for rows, share in epoch_of_batches(streams, 0, rules, generators, device):
        shares = torch.full(rows.shape, 1 / rows.shape[1]) if share is None else share
        assert rows.shape == shares.shape
        for s, (own, weights) in enumerate(zip(rows, shares, strict=True)):
            real = own > 0
            assert (weights[real] == (1 / max(int(real.sum()), 1))).all()
            assert not weights[~real].any()
            met[s] += own[real].tolist()
    for n, rows_met in zip(sizes, met, strict=True):
        last = n % batch_size or batch_size  # the size of the last batch, one alone may be left out
        left_out = (n if batch_size == 1 else 1) if skip_single and last == 1 else 0
        assert len(rows_met) == len(set(rows_met)) == n - left_out


@pytest.mark.parametrize("preset", ["paper", "exact"])
def test_divergence_at_the_first_step_is_marked_from_there_on(preset: Preset) -> None:
    pool = make_pool()
    large = dataclasses.replace(pool, z=pool.z * 1e37)  # its gradient is no finite number
    lost = train_fleet(large, [two_tasks(pool, 0)], [[Member("linear")]], preset, RULES)[0][0]
    assert lost.diverged == 1
    assert (lost.by_class[1:] == -1).all()
    assert bool((lost.by_class[0] == -1).all()) == (preset == "exact")


def test_a_repeated_task_is_shuffled_anew_each_time() -> None:
    stream, generator = Schedule((torch.arange(5),), 0, repeat=3), torch.Generator().manual_seed(0)
    batches = epoch_of_batches([stream], 0, RULES, [generator], torch.device("cpu"))
    assert [sorted(rows[0].tolist()) for rows, _ in batches] == [[0, 1, 2, 3, 4]] * 3
    assert len({tuple(rows[0].tolist()) for rows, _ in batches}) > 1


@settings(max_examples=30)
@given(
    kinds=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 14), st.integers(0, 2)), min_size=1, max_size=40
    ),
    room=st.integers(1, 20),
)
def test_a_plan_holds_every_job_once_and_keeps_to_the_budget(
    kinds: list[tuple[int, int, int]], room: int
) -> None:
    pool = make_pool()
    streams = [two_tasks(pool, seed, flip=seed == 2) for seed in range(4)]
    jobs = [Job(streams[s], Member(*COMBINATIONS[c], None, seed)) for s, c, seed in kinds]
    one_member = member_bytes(pool.z.shape[1], pool.n_classes, RULES.batch_size)
    budget = 12 * fleet_module.EVALUATE["cpu"] + room * 3 * one_member
    fleets = plan(jobs, pool, RULES, budget)
    numbers = [n for fleet in fleets for of_stream in fleet.jobs for n in of_stream]
    assert sorted(numbers) == list(range(len(jobs)))
    for fleet in fleets:
        layouts = set()
        for stream, of_stream in zip(fleet.schedules, fleet.jobs, strict=True):
            assert all(jobs[n].schedule is stream for n in of_stream)
            layouts.add(tuple((jobs[n].member.layer, jobs[n].member.mask) for n in of_stream))
        assert len(layouts) == 1
        size = sum(len(of_stream) for of_stream in fleet.jobs)
        assert size * one_member <= budget


def test_long_streams_count_in_the_budget() -> None:
    pool = make_pool()
    rows = torch.arange(120).repeat(100)
    jobs = [
        Job(Schedule((rows,), seed), Member("linear", "none", None, seed)) for seed in range(64)
    ]
    budget = 12 * fleet_module.EVALUATE["cpu"] + (4 << 20)
    for fleet in plan(jobs, pool, RULES, budget):
        generators = [torch.Generator().manual_seed(s.seed) for s in fleet.schedules]
        batches = epoch_of_batches(fleet.schedules, 0, RULES, generators, pool.z.device)
        held = sum(index.numel() * 12 for index, _ in batches)
        assert held <= 4 << 20


def test_a_budget_too_small_for_one_head_says_how_much_it_needs() -> None:
    pool = make_pool()
    with pytest.raises(OptionError, match=r"at least \d+ MiB .* got 1 MiB"):
        plan([Job(two_tasks(pool, 0), Member("linear"))], pool, RULES, 1 << 20)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("preset", ["paper", "exact"])
def test_a_gpu_gives_the_accuracies_of_a_cpu(preset: Preset) -> None:
    pool = make_pool()
    streams = [two_tasks(pool, seed, flip=seed % 2 == 1) for seed in range(4)]
    members = [[Member(*c, None, s) for c in COMBINATIONS] for s in range(4)]
    expected = train_fleet(pool, streams, members, preset, RULES)
    got = train_fleet(pool.to(torch.device("cuda")), streams, members, preset, RULES)
    for s in range(4):
        for k in range(len(COMBINATIONS)):
            assert (expected[s][k].by_class - got[s][k].by_class).abs().max() <= 1


def test_every_test_row_is_counted_once() -> None:
    pool = make_pool()
    stream, members = two_tasks(pool, 0), [[Member("linear", "none", 0.05, 0)]]
    (whole,) = train_fleet(pool, [stream], members, "paper", RULES)[0]
    parts = []
    for rows in (slice(0, 1), slice(1, 60)):
        some = dataclasses.replace(
            pool, test_z=pool.test_z[rows], test_y=pool.test_y[rows], test_group=None
        )
        parts += train_fleet(some, [stream], members, "paper", RULES)[0]
    assert whole.by_class[1:].sum() > 60
    assert torch.equal(whole.by_class[1:], parts[0].by_class[1:] + parts[1].by_class[1:])
