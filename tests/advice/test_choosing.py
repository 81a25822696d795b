"""Choosing: the best, unless a thriftier one is shown to be as good; ties are named."""

import numpy as np
import pytest
import torch
from scipy import stats

from lastlayer.advice.choosing import Scores, choose, much_cheaper
from lastlayer.advice.needs import Needs, read_bytes, read_seconds
from lastlayer.catalogue.head_cards import all_heads
from lastlayer.data import FeatureSet
from lastlayer.errors import OptionError
from lastlayer.evaluate.judge import Judgement, Verdict, judge
from lastlayer.evaluate.splits import Split
from lastlayer.evaluate.stream import lay_out
from small_streams import blobs, noise


def _judgement(answers):
    """Candidates with given answers on 10,000 held-out rows whose right answer is 0."""
    n = len(next(iter(answers.values())))
    y = torch.zeros(n, dtype=torch.int64)
    stream = lay_out(FeatureSet(torch.zeros(n + 4, 3), {"y": torch.cat([y, 1 + y[:4]])}), None)
    held = torch.arange(n)
    verdicts = {
        name: Verdict(name, (given,), torch.zeros(1), latency=1e-3)
        for name, given in answers.items()
    }
    split = Split((torch.arange(n, n + 4),), held)
    return stream, Judgement(verdicts, [split], (y,), (0,), torch.tensor([n]), 1.0, 5)


def _wrong(*rows, n=10_000):
    answers = torch.zeros(n, dtype=torch.int64)
    for part in rows:
        answers[part] = 1
    return answers


def test_the_best_is_chosen_over_a_thriftier_one_that_is_worse():
    stream, judgement = _judgement({"mean": _wrong(slice(0, 500)), "knn": _wrong(slice(0, 100))})
    choice = choose(stream, judgement, Needs())
    assert (choice.head, choice.level) == ("knn", ())
    assert choice.behind["mean"].low > 0.03


def test_a_thriftier_one_takes_its_place_if_shown_to_be_as_good():
    stream, judgement = _judgement({"mean": _wrong(slice(0, 110)), "knn": _wrong(slice(0, 100))})
    choice = choose(stream, judgement, Needs())
    assert (choice.head, choice.best) == ("mean", "knn")
    assert choice.behind["mean"].high < 0.005


def test_a_much_cheaper_one_within_noise_takes_its_place():
    answers = {"mean": _wrong(slice(0, 1010)), "knn": _wrong(slice(1000, 2000))}
    choice = choose(*_judgement(answers), Needs())
    assert (choice.head, choice.best) == ("mean", "knn")
    assert choice.behind["mean"].low <= 0 < choice.behind["mean"].value < 0.005


def test_a_much_cheaper_one_within_noise_is_only_named_if_it_lost_more():
    answers = {"mean": _wrong(slice(0, 160), n=1000), "knn": _wrong(slice(150, 300), n=1000)}
    choice = choose(*_judgement(answers), Needs())
    assert choice.behind["mean"].low <= 0
    assert choice.behind["mean"].value == pytest.approx(0.01)
    assert choice.head == "knn"
    assert choice.level == ("mean",)


def test_of_several_that_answer_alike_the_one_is_named_that_heads_their_line_in_the_table():
    one = {"mean": _wrong(slice(0, 160), n=1000), "slda": _wrong(slice(1, 160), n=1000)}
    choice = choose(*_judgement({**one, "knn": _wrong(slice(150, 300), n=1000)}), Needs())
    assert choice.lines["slda"] == "mean"
    assert (choice.head, choice.level) == ("knn", ("slda",))


def test_what_is_only_a_little_cheaper_is_only_named():
    answers = {"slda": _wrong(slice(0, 1010)), "ridge": _wrong(slice(1000, 2000))}
    choice = choose(*_judgement(answers), Needs())
    assert choice.head == "ridge"


@pytest.mark.parametrize("size", [(384, 150, 15_000), (64, 10, 300), (2048, 2, 10**6), (3, 2, 4)])
def test_of_two_heads_at_most_one_is_much_cheaper(size):
    names = all_heads()
    cheaper = {(a, b) for a in names for b in names if much_cheaper(a, b, size)}
    assert not {(b, a) for a, b in cheaper} & cheaper
    # Nor do three go round in a ring: the choice ends.
    assert not any((c, a) in cheaper for a, b in cheaper for b2, c in cheaper if b == b2)


def test_identical_heads_are_one_line_and_the_thriftier_is_chosen():
    answers = {"knn": _wrong(slice(0, 100)), "slda": _wrong(slice(0, 100))}
    choice = choose(*_judgement(answers), Needs())
    assert choice.head == "slda"
    assert choice.twins == ("knn",)
    assert choice.lines == {"knn": "slda", "slda": "slda"}


@pytest.mark.parametrize(
    "heads",
    [["linear", "cosine", "mean", "slda", "knn"], pytest.param(None, marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_on_pure_noise_nothing_is_learned(heads):
    stream = lay_out(noise(), "incremental:5")
    choice = choose(stream, judge(stream, heads), Needs())
    assert not choice.learned
    assert choice.level


def test_what_can_be_learned_is_told_from_noise():
    stream = lay_out(blobs(), "incremental:2")
    assert choose(stream, judge(stream, ["mean", "slda"]), Needs()).learned


@pytest.mark.parametrize(
    ("needs", "head"),
    [
        (Needs(), "knn"),
        (Needs(linear=True), "median"),
        (Needs(no_samples=True), "slda"),
        (Needs(memory=read_bytes("100B")), "linear"),
        (Needs(forgets=True, linear=True, no_samples=True), "slda"),
        (Needs(latency=read_seconds("2ms")), "knn"),
    ],
)
def test_constraints_are_met_and_priced(needs, head):
    answers = {
        "knn": _wrong(slice(0, 100)),
        "median": _wrong(slice(0, 600)),
        "slda": _wrong(slice(0, 1200)),
        "linear": _wrong(slice(0, 2500)),
        "mean": _wrong(slice(0, 3000)),
    }
    choice = choose(*_judgement(answers), needs)
    assert choice.head == head
    if len(needs.given) == 1:
        (cost,) = choice.costs.values()
        assert cost.value == pytest.approx(choice.scores.of("knn") - choice.scores.of(head))


def test_constraints_that_nobody_meets_name_who_comes_nearest():
    with pytest.raises(OptionError, match="the smallest is mean with"):
        choose(*_judgement({"mean": _wrong(), "knn": _wrong()}), Needs(memory=10))
    with pytest.raises(OptionError, match=r"no head meets --latency 0.001ms .*the fastest is"):
        choose(*_judgement({"mean": _wrong(), "knn": _wrong()}), Needs(latency=1e-6))


def test_the_simultaneous_interval_holds_for_all_at_once():
    """Of 20 heads equally good in truth, the whole set of intervals misses in about one of 20."""
    misses = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        right = {str(k): (random.random(300) < 0.7).astype(float) for k in range(20)}
        behind = Scores(right, np.arange(300), seed).behind("0", [str(k) for k in range(1, 20)])
        misses += any(b.low > 0 or b.high < 0 for b in behind.values())
    assert misses <= 12


def test_rows_of_one_source_widen_the_interval():
    random = np.random.default_rng(0)
    right = {"a": np.repeat((random.random(30) < 0.7).astype(float), 10)}
    alone = Scores(right, np.arange(300)).accuracy("a")
    together = Scores(right, np.repeat(np.arange(30), 10)).accuracy("a")
    assert together.high - together.low > 2 * (alone.high - alone.low)


@pytest.mark.parametrize(("wrong", "of"), [(0, 26), (1, 45), (3, 100), (23, 26), (26, 26)])
def test_few_wrong_or_right_answers_leave_open_what_wilsons_interval_does(wrong, of):
    right = {"a": (np.arange(of) >= wrong).astype(float)}
    found = Scores(right, np.arange(of)).accuracy("a")
    wilson = stats.binomtest(of - wrong, of).proportion_ci(method="wilson")
    assert found.low <= wilson.low + 1e-9
    assert found.high >= wilson.high - 1e-9


@pytest.mark.parametrize("text", ["", "1 XB", "-1MB", "0", "1e400MB"])
def test_sizes_that_are_none(text):
    with pytest.raises(OptionError, match="memory must be a size"):
        read_bytes(text)
