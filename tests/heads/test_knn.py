import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from lastlayer.errors import (
    LabelError,
    NotLearnedError,
    OptionError,
    ShapeError,
    UnknownNameError,
    UnsupportedError,
)
from lastlayer.heads import load_head
from lastlayer.heads.neighbours.knn import KnnHead


def stream(n: int, h: int = 6, n_classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, h, generator=generator)
    return z, torch.randint(n_classes, (n,), generator=generator)


def learned(z: Tensor, y: Tensor, batch: int = 50, **options: object) -> KnnHead:
    head = KnnHead(z.shape[1], **options)  # type: ignore[arg-type]
    for part_z, part_y in zip(z.split(batch), y.split(batch), strict=True):
        head.observe(part_z, part_y)
    return head


@pytest.mark.parametrize("k", [1, 5, 40])
def test_equals_scikit_learn(k: int) -> None:
    z, y = stream(400)
    queries = torch.cat([stream(200, seed=1)[0], z[:30]])  # some at distance 0
    # a tree computes distances by differences, and so finds the zeros; brute force there does not
    judge = KNeighborsClassifier(k, weights="distance", algorithm="kd_tree")
    judge.fit(z.double().numpy(), y.numpy())
    head = learned(z, y, k=k)
    expected = judge.predict_proba(queries.double().numpy())
    np.testing.assert_allclose(head(queries).softmax(1).numpy(), expected, atol=1e-12)
    clear = np.sort(expected, axis=1)[:, -1] > np.sort(expected, axis=1)[:, -2] + 1e-9
    predicted = judge.predict(queries.double().numpy())
    assert np.array_equal(head.predict(queries).numpy()[clear], predicted[clear])


def test_votes_by_hand() -> None:
    z = torch.tensor([[1.0], [-2.0], [4.0], [100.0]])
    head = learned(z, torch.tensor([2, 0, 2, 1]), k=3, n_classes=4)
    shares = torch.tensor([[0.5, 0.0, 1.25, 0.0]], dtype=torch.float64) / 1.75
    torch.testing.assert_close(head(torch.zeros(1, 1)), shares.log(), rtol=1e-15, atol=0)


def test_neighbours_at_distance_zero_share_the_vote() -> None:
    z = torch.tensor([[0.0], [0.0], [0.0], [1e-12], [1.0]])
    head = learned(z, torch.tensor([1, 0, 1, 2, 2]))
    shares = head(torch.zeros(1, 1)).exp()
    torch.testing.assert_close(shares, torch.tensor([[1 / 3, 2 / 3, 0.0]], dtype=torch.float64))


def test_all_rows_vote_while_there_are_fewer_than_k() -> None:
    head = learned(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 0]))
    shares = head(torch.zeros(1, 1)).exp()
    torch.testing.assert_close(shares, torch.tensor([[0.25, 0.75]], dtype=torch.float64))


def test_ties_go_to_the_earlier_row_and_the_lower_class() -> None:
    z = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    assert (
        learned(z, torch.tensor([3, 1, 0, 2]), k=1).predict(torch.zeros(9, 1)).tolist() == [3] * 9
    )
    assert (
        learned(z, torch.tensor([3, 1, 0, 2]), k=2).predict(torch.zeros(9, 1)).tolist() == [1] * 9
    )


@given(st.integers(0, 2**32), st.integers(1, 70), st.integers(1, 9))
def test_order_and_batches_do_not_matter(seed: int, batch: int, k: int) -> None:
    z, y = stream(60, seed=seed)
    queries = stream(20, seed=seed + 1)[0]
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    expected = learned(z, y, k=k)(queries)
    assert torch.equal(learned(z[order], y[order], batch, k=k)(queries), expected)


@given(st.integers(0, 2**32), st.sampled_from([1e4, -(2.0**20)]))
def test_an_offset_changes_no_bit(seed: int, offset: float) -> None:
    z, y = stream(60, seed=seed)
    z = (z.double() * 2**20).round() / 2**20  # so that adding the offset does not round
    queries = z[:20] + 2**-20
    expected = learned(z, y)(queries)
    assert torch.equal(learned(z + offset, y)(queries + offset), expected)


def test_a_query_gets_the_same_bits_alone_and_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    (z, y), (queries, _) = stream(300), stream(50, seed=1)
    head = learned(z, y)
    together = head(queries)
    assert torch.equal(torch.cat([head(q[None]) for q in queries]), together)
    monkeypatch.setattr("lastlayer.heads.neighbours.knn._BLOCK", 32)
    assert torch.equal(head(queries), together)


@pytest.mark.parametrize("keep", ["central", "random", "first"])
def test_a_budget_holds_after_each_observe(keep: str) -> None:
    z, y = stream(200)
    head = KnnHead(6, budget=10, keep=keep)
    for part_z, part_y in zip(z.split(30), y.split(30), strict=True):
        head.observe(part_z, part_y)
        assert head.memory.y.bincount().max() <= 10
    assert head.memory.y.bincount().tolist() == [10] * 4


def test_the_paper_cuts_classes_above_250_to_150() -> None:
    head = KnnHead(2, n_classes=3, preset="paper")
    z = torch.randn(700, 2, generator=torch.Generator().manual_seed(0))
    head.observe(z[:251], torch.zeros(251, dtype=torch.int64))
    head.observe(z[:250], torch.ones(250, dtype=torch.int64))
    assert head.memory.y.bincount().tolist() == [251, 250]  # not above 200 · 3 in all
    head.observe(z[:100], torch.full((100,), 2))
    assert head.memory.y.bincount().tolist() == [150, 250, 100]
    head.observe(z[250:260], torch.ones(10, dtype=torch.int64))
    assert head.memory.y.bincount().tolist() == [150, 260, 100]
    head(z[:1])
    assert head.memory.y.bincount().tolist() == [150, 150, 100]
    spread = torch.cdist(z[:251].double(), z[:251].double()).sum(1)
    assert torch.equal(head.memory.z[:150], z[spread.argsort()[:150].sort().values])


def test_fixed_rows_are_answered_as_by_the_head() -> None:
    (z, y), (queries, _) = stream(300), stream(40, seed=1)
    head = KnnHead(6)
    answers = head.predictor(queries)
    for part_z, part_y in zip(z.split(60), y.split(60), strict=True):
        head.observe(part_z, part_y)
        assert torch.equal(answers(), head.predict(queries))


@pytest.mark.parametrize("options", [{"budget": 9}, {"preset": "paper"}])
def test_what_answers_fixed_rows_notices_that_rows_were_dropped(options: dict[str, object]) -> None:
    (z, y), (queries, _) = stream(1200), stream(40, seed=1)
    head = KnnHead(6, **options)  # type: ignore[arg-type]
    answers, twin = head.predictor(queries), copy.deepcopy(head)
    for part_z, part_y in zip(z.split(100), y.split(100), strict=True):
        head.observe(part_z, part_y)
        twin.observe(part_z, part_y)
        assert torch.equal(answers(), twin.predict(queries))
    head.forget_class(2)
    twin.forget_class(2)
    assert torch.equal(answers(), twin.predict(queries))


def test_what_answers_fixed_rows_sees_a_class_that_arrives_later() -> None:
    head = learned(*stream(20, n_classes=2))
    answers = head.predictor(torch.zeros(1, 6))
    assert answers().item() < 2
    head.observe(torch.zeros(1, 6), torch.tensor([4]))
    assert answers().tolist() == [4]


def test_merging_equals_having_seen_both() -> None:
    (z, y), (queries, _) = stream(200, n_classes=6), stream(40, seed=1)
    ours, theirs = learned(z[:80], y[:80] % 3), learned(z[80:], y[80:])
    merged = ours.merge(theirs)
    both = learned(z, torch.cat([y[:80] % 3, y[80:]]))
    assert torch.equal(merged(queries), both(queries))
    assert len(ours.memory) == 80


@pytest.mark.parametrize("options", [{"budget": 9}, {"preset": "paper"}])
def test_heads_with_a_budget_cannot_be_merged(options: dict[str, object]) -> None:
    head = learned(*stream(20), **options)
    with pytest.raises(UnsupportedError, match="cannot be merged exactly: its budget"):
        head.merge(learned(*stream(20), **options))


def test_a_forgotten_class_leaves_no_trace() -> None:
    (z, y), (queries, _) = stream(100), stream(40, seed=1)
    head = learned(z, y, n_classes=4)
    head.forget_class(1)
    assert torch.equal(head(queries), learned(z[y != 1], y[y != 1], n_classes=4)(queries))
    with pytest.raises(LabelError, match="from 0 to 3, got 4"):
        head.forget_class(4)


@pytest.mark.parametrize(
    "options", [{}, {"budget": 9, "keep": "random", "seed": 3}, {"preset": "paper", "k": 3}]
)
def test_a_loaded_head_goes_on_as_the_saved_one(tmp_path: Path, options: dict[str, object]) -> None:
    (z, y), (more, labels) = stream(150), stream(90, seed=1)
    head = learned(z, y, **options)
    head.save(tmp_path / "head.safetensors")
    loaded = load_head(tmp_path / "head.safetensors")
    fresh = learned(*stream(7, seed=2), **options)
    fresh.load_state_dict(head.state_dict())
    for one in (head, loaded, fresh):
        one.observe(more, labels)
    assert torch.equal(loaded(z), head(z))
    assert torch.equal(fresh(z), head(z))


def test_bad_options_are_refused() -> None:
    for options, message in (
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"budget": 0}, "budget must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"preset": "paper", "budget": 9}, "takes no budget"),
        ({"preset": "paper", "keep": "first"}, "got budget=None and keep='first'"),
    ):
        with pytest.raises(OptionError, match=message):
            KnnHead(3, **options)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="did you mean 'first'"):
        KnnHead(3, keep="frist")


def test_what_answers_fixed_rows_refuses_what_the_head_refuses() -> None:
    head = KnnHead(3)
    with pytest.raises(ShapeError, match=r"features must have 3 columns, got 4"):
        head.predictor(torch.zeros(2, 4))
    with pytest.raises(NotLearnedError):
        head.predictor(torch.zeros(2, 3))()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same_neighbours() -> None:
    z, y = stream(3000)
    z = (z * 8).round()  # many ties
    head = learned(z, y, k=9)
    expected = head(z[:500])
    found = head.cuda()(z[:500].cuda()).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 100.0, 1e4])
def test_a_few_queries_are_answered_as_many(dtype: torch.dtype, offset: float) -> None:
    generator = torch.Generator().manual_seed(0)
    z = (torch.randn(300, 6, generator=generator).round(decimals=1) + offset).to(dtype)
    y, queries = torch.arange(300) % 4, z[::13] + 0.1
    head = KnnHead(6)
    for size in (1, 40, 300):  # what is remembered of the rows follows them
        head.observe(z[:size], y[:size])
        assert torch.equal(torch.cat([head(q) for q in queries.split(2)]), head(queries))
    head.forget(z[:7], y[:7])
    assert torch.equal(torch.cat([head(q) for q in queries.split(1)]), head(queries))


def test_five_neighbours_vote_unless_told() -> None:
    assert KnnHead(2, 2).options["seed"] == 0
    head = KnnHead(in_features=1)
    head.observe(torch.arange(6.0)[:, None], torch.tensor([0, 0, 0, 1, 1, 1]))
    assert head(torch.tensor([[0.0]])).shape == (1, 2)
    assert KnnHead(in_features=1).k == 5


def test_it_counts_what_it_keeps() -> None:
    head = KnnHead(2, 4)
    head.observe(torch.rand(5, 2), torch.tensor([0, 2, 2, 0, 2]))
    assert head.class_counts.tolist() == [2, 0, 3, 0]
