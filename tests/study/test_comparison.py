"""Comparing heads: the table, the ranking, and the upper bound."""

from dataclasses import replace

import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression

import lastlayer as ll
from lastlayer.catalogue.head_cards import card_of
from lastlayer.data import Features
from lastlayer.errors import DataError, OptionError, UnknownNameError
from lastlayer.evaluate.costs import RETRAINED
from lastlayer.scenarios import incremental
from lastlayer.scenarios.spec import GivenScenario
from lastlayer.study import Run, ScenarioSpec, rank, upper_bound
from small_data import small_data

DATA = small_data()
HEADS = ["linear", "cosine+single", "slda"]


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return ll.compare(DATA, "incremental:3", HEADS, orders=range(3), device="cpu")


def test_the_table(table: pl.DataFrame) -> None:
    assert table.columns == ["head", "mask", "order", "task", "epoch", "accuracy"]
    assert table.height == 3 * 3 * 16
    assert table.select("head", "mask").unique(maintain_order=True).rows() == [
        ("linear", "none"),
        ("cosine", "single"),
        ("slda", "none"),
    ]
    one = table.filter(head="slda", order=2)
    times = [(0, 0), *((task, epoch) for task in range(3) for epoch in range(1, 6))]
    assert one.select("task", "epoch").rows() == times
    assert one["accuracy"].null_count() == 1
    assert one["accuracy"][0] is None
    assert table["accuracy"].max() <= 1


def test_streams_make_linear_forget(table: pl.DataFrame) -> None:
    ranking = rank(table)
    assert ranking["head"].to_list()[-1] == "linear"
    assert ranking.filter(head="linear")["accuracy"].item() < 0.7
    assert ranking["accuracy"][0] > 0.9


def test_a_spec_is_as_good_as_its_text(table: pl.DataFrame) -> None:
    again = ll.compare(
        DATA, ScenarioSpec("incremental", tasks=3), HEADS, orders=range(3), device="cpu"
    )
    assert again.equals(table)


def test_a_scenario_is_as_good_as_its_name(table: pl.DataFrame) -> None:
    again = ll.compare(DATA, incremental(DATA, tasks=3), HEADS, orders=range(3), device="cpu")
    assert again.equals(table)
    bound = upper_bound(DATA, incremental(DATA, tasks=3), device="cpu")
    assert bound == upper_bound(DATA, "incremental:3", device="cpu")


def test_orders_permute_the_tasks_of_a_scenario() -> None:
    """One that was laid out in another order begins with it, and 0 leaves it so."""
    third = incremental(DATA, tasks=3, order=3)
    assert third.order != (0, 1, 2)
    given = ll.compare(DATA, third, ["linear"], orders=[0, 1], device="cpu")
    named = ll.compare(DATA, "incremental:3", ["linear"], orders=[3], device="cpu")
    first = given.filter(order=0)["accuracy"].to_list()
    assert first != given.filter(order=1)["accuracy"].to_list()
    # The same tasks in the same order, with another seed of the training.
    assert first[5] == pytest.approx(named["accuracy"][5], abs=0.1)
    rows = GivenScenario(third)
    assert rows.build(DATA, 1).order == incremental(DATA, tasks=3, order=1).order
    for place, task in enumerate(rows.build(DATA, 1).order):
        assert rows.build(DATA, 1).tasks[place].equal(third.tasks[task])


def test_a_scenario_of_other_data_is_refused() -> None:
    with pytest.raises(DataError, match="was made from other data"):
        ll.compare(small_data(n=600), incremental(DATA, tasks=3), ["mean"], orders=[0])


def test_scenarios_that_are_given_have_names_of_their_own() -> None:
    one, two = (Run("x", GivenScenario(incremental(DATA, n)), "mean") for n in (3, 2))
    assert one.digest("") != two.digest("")
    assert one.digest("") == Run("x", GivenScenario(incremental(DATA, 3)), "mean").digest("")


def test_orders_are_a_number_or_seeds(table: pl.DataFrame) -> None:
    again = ll.compare(DATA, "incremental:3", HEADS, orders=3, device="cpu")
    assert again.equals(table)
    some = ll.compare(DATA, "incremental:3", ["mean"], orders=[5, 2], device="cpu")
    assert some["order"].unique(maintain_order=True).to_list() == [5, 2]


def test_what_is_too_large_to_retrain_on_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RETRAINED, "cpu", 10)
    with pytest.raises(DataError, match=r"rows × .* classes are too many to retrain on here"):
        upper_bound(DATA, "incremental:3", device="cpu")


def test_the_kernel_is_a_bound_for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(card_of("kernel_ridge"), most_rows=2)
    monkeypatch.setattr("lastlayer.study.comparison.card_of", lambda name: few)
    with pytest.raises(DataError, match="kernel_ridge takes at most 2 rows by default"):
        upper_bound(DATA, "incremental:3", behind="kernel_ridge", device="cpu")


def test_the_bound_is_also_there_behind_a_map() -> None:
    plain, behind = (
        upper_bound(DATA, "incremental:3", behind=name, device="cpu")
        for name in (None, "random_slda")
    )
    assert plain.name == "softmax regression"
    assert behind.name == "softmax regression behind the map of random_slda"
    assert behind.accuracy > 0.9
    kernel = upper_bound(DATA, "incremental:3", behind="kernel_ridge", device="cpu")
    assert kernel.name == "kernel_ridge of all rows"
    assert kernel.accuracy > 0.9
    with pytest.raises(OptionError, match="must be a head with a feature map, got 'slda'"):
        upper_bound(DATA, "incremental:3", behind="slda", device="cpu")


def test_another_label_can_be_learned() -> None:
    table = ll.compare(DATA.with_label("session"), "iid", ["mean"], orders=[0])
    assert rank(table)["accuracy"].item() == pytest.approx(1 / 3, abs=0.2)


def test_the_rate_is_for_heads_trained_by_gradient() -> None:
    slow = ll.compare(DATA, "iid", ["linear", "mean"], orders=[0], lr=1e-6, device="cpu")
    best = dict(rank(slow).select("head", "accuracy").rows())
    assert best["linear"] < best["mean"]


def test_a_diverged_head_comes_last() -> None:
    wild = ll.compare(DATA, "iid", ["linear", "mean"], orders=[0, 1], lr=1e38, device="cpu")
    ranking = rank(wild)
    assert ranking.select("head", "diverged").rows() == [("mean", 0), ("linear", 2)]


def test_a_run_that_fails_is_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DataError("no medians today")

    monkeypatch.setattr("lastlayer.heads.neighbours.median.MedianHead._learn", refuse)
    with pytest.warns(UserWarning, match="left out: .* median .*: no medians today"):
        table = ll.compare(DATA, "iid", ["mean", "median"], orders=[0])
    assert rank(table)["head"].to_list() == ["mean"]


@pytest.mark.parametrize(
    ("scenario", "heads", "error", "message"),
    [
        ("incremental:3", [], OptionError, "at least one head"),
        ("incremental:3", ["sldaa"], UnknownNameError, "did you mean 'slda'"),
        ("mixed:place", ["slda"], DataError, "unknown label column 'place'"),
        ("cifar100", ["slda"], DataError, "needs the label columns"),
    ],
)
def test_what_cannot_be_compared_is_said(
    scenario: str, heads: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ll.compare(DATA, scenario, heads, orders=[0])


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_the_bound_is_a_converged_softmax_regression(scale: float) -> None:
    """Scikit-learn's, whatever the scale of the features."""
    train, test = DATA.train, DATA.test
    data = Features.from_arrays(scale * train.z, train.y, test=(scale * test.z, test.y))
    bound = upper_bound(data, "incremental:3", device="cpu")
    theirs = LogisticRegression(C=10, max_iter=1000).fit(train.z.numpy(), train.y.numpy())
    assert bound.accuracy == pytest.approx(
        theirs.score(test.z.numpy(), test.y.numpy()), abs=2.5 / len(test)
    )


def test_of_equally_good_heads_the_thriftiest_comes_first() -> None:
    heads = ["knn", "median", "linear", "mean", "slda"]
    table = pl.DataFrame({"head": heads, "mask": "none", "order": 0, "task": 0, "epoch": 1,
                          "accuracy": [1.0, 1.0, 1.0, 1.0, 0.5]})  # fmt: skip
    assert rank(table)["head"].to_list() == ["mean", "linear", "median", "knn", "slda"]
