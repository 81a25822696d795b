"""Judging: candidates learn from the rest, whatever the scale of the features."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

import lastlayer as ll
from lastlayer import catalogue
from lastlayer.evaluate.costs import RETRAINED
from lastlayer.evaluate.judge import BATCH, _cost, _too_slow, checkpoints_of, judge
from lastlayer.evaluate.pool import learn_rows
from lastlayer.evaluate.rates import thinned, work_of
from lastlayer.evaluate.splits import Split, splits_of
from lastlayer.evaluate.stream import feature_scale, lay_out
from lastlayer.heads import make_head
from sizes import Sizes
from small_streams import blobs


def share_right(judgement, head):
    return float(judgement.right(head).double().mean())


def _shares(data, heads=None):
    judgement = judge(lay_out(data, "incremental:2"), heads)
    return {head: share_right(judgement, head) for head in judgement.verdicts}


@pytest.mark.slow
def test_every_head_of_the_catalogue_is_a_candidate_and_learns_blobs():
    shares = _shares(blobs(noise=0.3))
    assert set(shares) == set(catalogue.all_heads())
    assert shares["slda"] > 0.95
    assert shares["cosine+single"] > 0.8


def test_a_head_is_judged_as_it_would_be_alone():
    stream = lay_out(blobs(n=398, noise=2.0), "incremental:4")
    judgement = judge(stream, ["slda", "knn"])
    assert len({len(split.held) for split in judgement.splits}) > 1  # splits of different sizes
    for head in ("slda", "knn"):
        for split, answers in zip(judgement.splits, judgement.verdicts[head].answers, strict=True):
            alone = make_head(head, in_features=6)
            for rows in split.tasks:
                learn_rows(alone, stream.z, stream.y, rows.split(BATCH))
            assert torch.equal(alone.predict(stream.z[split.held]), answers)


@pytest.mark.parametrize(("h", "slow"), [(384, []), (1280, ["sampled_linear"])])
def test_what_takes_longer_to_solve_than_all_others_is_left_out(h, slow):
    data = ll.Features.from_arrays(np.zeros((40, h)), np.arange(40) % 20, test=0.5)
    found = _too_slow(lay_out(data, "incremental:2"), catalogue.all_heads())
    assert list(found) == slow
    assert all("ask for it with --heads" in why for why in found.values())


def test_wider_heads_that_have_too_few_rows_are_not_named(monkeypatch):
    monkeypatch.setattr("lastlayer.evaluate.judge.SOLVED", 0.0)
    monkeypatch.setattr("lastlayer.evaluate.judge.all_heads", lambda: ["mean", "slda", "linear"])
    left_out = judge(lay_out(blobs(), "incremental:2"), curves=False).left_out
    assert left_out.keys() <= {"mean", "slda"}


def test_curves_count_what_has_come():
    judgement = judge(lay_out(blobs(noise=0.01), "incremental:4"), ["mean"])
    assert judgement.checkpoints == (0, 1, 2, 3)
    assert judgement.verdicts["mean"].right.tolist() == judgement.come.tolist()


def test_curves_are_of_as_many_splits_as_make_enough_rows():
    stream = lay_out(blobs(n=1200, noise=3.0), "incremental:4")
    judgement = judge(stream, ["mean", "linear"])
    sizes = [len(held) for held in judgement.held_y]
    assert len(sizes) > 3
    assert judgement.come[-1] == sum(sizes[:2])
    for verdict in judgement.verdicts.values():
        pairs = zip(verdict.answers[:2], judgement.held_y[:2], strict=True)
        assert verdict.right[-1] == sum(int((a == y).sum()) for a, y in pairs)


def test_a_head_that_is_slow_to_answer_is_looked_at_only_once_before_the_end(monkeypatch):
    monkeypatch.setattr("lastlayer.evaluate.judge.SCORING", 0.0)
    judgement = judge(lay_out(blobs(noise=0.01), "incremental:4"), ["mean"])
    first, *between, last = judgement.verdicts["mean"].right.tolist()
    assert between == [-1, -1]
    assert [first, last] == judgement.come[[0, -1]].tolist()


def test_without_curves_the_answers_are_the_same():
    stream = lay_out(blobs(n=398, noise=2.0), "incremental:4")
    with_curves, without = (judge(stream, ["slda", "cosine"], curves=c) for c in (True, False))
    for name, verdict in with_curves.verdicts.items():
        assert all(map(torch.equal, verdict.answers, without.verdicts[name].answers))
    assert without.checkpoints == (3,)


def test_rates_are_found_on_whole_sources():
    data = blobs(n=200)
    source = torch.arange(len(data.train)) // 4
    labels = {"y": data.train.y, "source": source}
    stream = lay_out(ll.FeatureSet(data.train.z, labels), None, group="source")
    inner = thinned(stream, splits_of(stream, n=1)[0], n_heads=1)
    assert not set(source[inner.held].tolist()) & set(source[torch.cat(inner.tasks)].tolist())


def test_a_task_may_be_held_out_whole():
    data = blobs(n=100)
    tasks = (torch.arange(0, 50), torch.tensor([50]), torch.arange(51, 100))
    stream = replace(lay_out(ll.FeatureSet(data.train.z, {"y": data.train.y}), None), tasks=tasks)
    split = Split((tasks[0], tasks[1][:0], tasks[2][:-9]), torch.cat([tasks[1], tasks[2][-9:]]))
    judgement = judge(stream, ["linear", "mean"], splits=[split])
    assert share_right(judgement, "mean") > 0.8
    assert share_right(judgement, "linear") > 0.2


def test_checkpoints_are_few():
    assert len(checkpoints_of(150)) == 10
    assert checkpoints_of(150)[-1] == 149


@pytest.mark.parametrize(
    "factor",
    [1e-4, *(pytest.param(f, marks=pytest.mark.slow) for f in (0.1, 3.0, 1e4))],
)
def test_the_answer_does_not_depend_on_the_scale_of_the_features(factor):
    data = blobs(n=200, noise=1.5)
    z, y = data.train.z, data.train.y
    scaled = ll.FeatureSet(z * factor, {"y": y})
    heads = ["linear", "cosine+single", "weight_norm", "mean", "slda", "knn"]
    before, after = _shares(ll.FeatureSet(z, {"y": y}), heads), _shares(scaled, heads)
    assert all(abs(before[head] - after[head]) <= 0.005 for head in heads)


def test_features_are_measured_without_overflow():
    rows = torch.arange(3)
    assert feature_scale(torch.full((3, 4), 1e30), rows, norm=1.0) == pytest.approx(2e30)
    assert feature_scale(torch.zeros(3, 4), rows, norm=1.0) == 1.0


def test_heads_too_large_to_train_are_left_out_with_a_word():
    y = torch.arange(20_000).repeat(2)
    z = torch.randn(40_000, 4, generator=torch.Generator().manual_seed(0))
    judgement = judge(lay_out(ll.FeatureSet(z, {"y": y}), None), ["linear", "mean"])
    assert "too many" in judgement.left_out["linear"]
    assert list(judgement.verdicts) == ["mean"]


def test_heads_that_would_keep_too_many_rows_are_left_out_with_a_word(monkeypatch):
    stream = lay_out(blobs(), None)
    monkeypatch.setattr("lastlayer.evaluate.costs.KEPT", 4 * stream.z.numel())
    judgement = judge(stream, ["knn", "median", "mean"])
    assert set(judgement.verdicts) == {"mean"}
    assert set(judgement.left_out) == {"knn", "median"}
    assert "it would keep 13 kB of rows" in judgement.left_out["knn"]


def test_heads_are_not_trained_on_a_copy_of_features_that_is_too_large(monkeypatch):
    stream = lay_out(blobs(), None)
    monkeypatch.setattr("lastlayer.evaluate.rates.KEPT", 4 * stream.z.numel() - 1)
    judgement = judge(stream, ["linear", "mean"])
    assert list(judgement.verdicts) == ["mean"]
    assert judgement.left_out["linear"].startswith("400 rows × 6 features of 4 classes are too")


def test_what_could_be_trained_can_be_tested(monkeypatch):
    """All rows are more than those without the held-out ones: the test must not be left out."""
    stream = lay_out(blobs(), None)
    monkeypatch.setattr("lastlayer.evaluate.rates.WORK", work_of(stream, splits_of(stream)[0]))
    advice = ll.advise(blobs(), heads=["linear"])
    assert advice.head == "linear"
    assert advice.tested.rows == 100


def test_rows_held_out_may_lie_elsewhere():
    """As if they lay with the others, for a head of each kind."""
    stream = lay_out(blobs(noise=2.0), "incremental:2")
    (split,) = splits_of(stream, n=1)
    elsewhere = replace(split, held_z=stream.z[split.held].double())
    z = stream.z.clone()
    z[split.held] = z[split.held.flip(0)]  # what lies in the stream would give other answers
    heads, rates = ["mean", "knn", "linear"], {"linear": 0.01}
    here = judge(stream, heads, splits=[split], rates=rates)
    there = judge(replace(stream, z=z), heads, splits=[elsewhere], rates=rates)
    for name in heads:
        assert torch.equal(here.verdicts[name].answers[0], there.verdicts[name].answers[0])


def test_nothing_copies_all_features(monkeypatch):
    """Neither to describe a stream, nor to judge it, nor to test: a file may exceed the memory."""
    random = torch.Generator().manual_seed(0)
    z = torch.randn(36_000, 160, generator=random).half()
    y = torch.arange(len(z)) % 5
    data = ll.Features.from_arrays(z, y, test=(z[:500], y[:500]))
    monkeypatch.setitem(RETRAINED, "cpu", 0)  # as if the data were larger
    monkeypatch.setattr("lastlayer.evaluate.judge.one_core_each", lambda _: nullcontext(Here()))
    with Sizes(data.train.z, data.test.z) as made:
        advice = ll.advise(data, heads=["mean", "slda", "ridge"])
    assert advice.tested.rows == 500
    assert 10_000 < made.largest < z.numel()


class Here:
    """In the place of threads, so that what is made can be watched."""

    map = staticmethod(map)


def test_what_is_slow_to_learn_and_behind_is_judged_once(monkeypatch):
    random = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 2
    z = torch.randn(600, 100, generator=random)  # all features but the first say nothing
    z[:, 0] += 4 * y
    stream = lay_out(ll.FeatureSet(z, {"y": y}), None)
    assert not judge(stream, ["slda", "knn"], curves=False).left_out
    monkeypatch.setattr("lastlayer.evaluate.judge.SLOW", 0.0)
    found = judge(stream, ["slda", "knn"], curves=False)
    assert list(found.verdicts) == ["slda"]
    assert "slda is right" in found.left_out["knn"]
    assert len(found.right("slda")) >= 600


def test_what_is_slow_is_judged_again_where_nothing_as_able_is_better(monkeypatch):
    """What --linear or --no-samples would ask for is not dropped for a head that is neither."""
    random = torch.Generator().manual_seed(0)
    z = torch.randn(600, 2, generator=random)
    y = (z.square().sum(1) > 1.4).long()
    monkeypatch.setattr("lastlayer.evaluate.judge.SLOW", 0.0)
    found = judge(lay_out(ll.FeatureSet(z, {"y": y}), None), ["slda", "knn", "qda"], curves=False)
    assert share_right(found, "slda") < share_right(found, "knn") - 0.2
    assert not found.left_out


def test_wider_maps_are_tried_or_named_with_what_they_would_cost(monkeypatch):
    """Where there are enough rows, and only if nobody asked for heads."""
    stream = lay_out(blobs(n=400, noise=2.0), "incremental:2")
    narrow, wide, wider = (f"random_slda@{width}" for width in (40, 60, 1000))
    monkeypatch.setattr("lastlayer.evaluate.judge.all_heads", lambda: ("mean",))
    monkeypatch.setattr("lastlayer.evaluate.judge.WIDER", {narrow: 9, wide: 300, wider: 1000})
    split = splits_of(stream, 0)[0]
    dearest = replace(split, checkpoints=(1,))
    monkeypatch.setattr("lastlayer.evaluate.judge.WIDEST", _cost(narrow, stream, dearest))
    found = judge(stream)
    assert set(found.verdicts) == {"mean", narrow}
    assert found.verdicts[narrow].latency > 0
    assert set(found.left_out) == {wide}
    assert "would take some 1 min of one core, and it keeps 57 kB" in found.left_out[wide]
    assert not judge(stream, ["mean", wide]).left_out
