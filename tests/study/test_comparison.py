"""Comparing heads: the table, the ranking, the upper bound, and the sentence."""

import polars as pl
import pytest
from small_data import small_data

import lastlayer as ll
from lastlayer.catalogue import HEADS as HEADS_
from lastlayer.errors import DataError, OptionError, UnknownNameError
from lastlayer.features import Features
from lastlayer.scenarios import incremental
from lastlayer.study import Bound, Run, ScenarioSpec, advise, rank, upper_bound
from lastlayer.study.scenario_spec import GivenScenario

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
    with pytest.raises(DataError, match="expected a scenario of these data"):
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


def test_without_any_reference_it_is_said() -> None:
    data = Features.from_arrays(DATA.train.z, DATA.train.y, test=(DATA.test.z, DATA.test.y))
    nothing = {name: card for name, card in HEADS_.items() if name == "linear"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lastlayer.study.comparison.HEADS", nothing)
        with pytest.raises(DataError, match="no head could learn from everything at once"):
            upper_bound(data, "incremental:3", lr=1e38, device="cpu")


def test_advice_without_a_bound() -> None:
    ranking = pl.DataFrame({"head": ["slda", "linear"], "accuracy": [0.669, 0.187]})
    expected = "Use slda: it ends at 66.9 %; an ordinary linear layer falls to 18.7 %."
    assert advise(ranking) == expected


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
    assert "an ordinary linear layer diverges" in advise(ranking, Bound("mean", 0.99))


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


def test_the_bound_is_the_best_head_on_everything() -> None:
    bound = upper_bound(DATA, "incremental:3", device="cpu")
    everything = ll.compare(DATA, "iid", [bound.head, "mean", "linear"], orders=[0], device="cpu")
    best = rank(everything)
    assert best.row(0)[:2] == (bound.head, bound.accuracy)


def test_of_equally_good_heads_the_thriftiest_comes_first() -> None:
    heads = ["knn", "median", "linear", "mean", "slda"]
    table = pl.DataFrame({"head": heads, "mask": "none", "order": 0, "task": 0, "epoch": 1,
                          "accuracy": [1.0, 1.0, 1.0, 1.0, 0.5]})  # fmt: skip
    assert rank(table)["head"].to_list() == ["mean", "linear", "median", "knn", "slda"]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            [("slda", 0.669), ("linear", 0.187)],
            "Use slda: it ends at 66.9 %, 2.4 points below weight_norm trained on everything at "
            "once (69.3 %); an ordinary linear layer falls to 18.7 %.",
        ),
        (
            [("slda", 0.70), ("linear", 0.69)],
            "Use slda: it ends at 70.0 %, 0.7 points above weight_norm trained on everything at "
            "once (69.3 %); an ordinary linear layer reaches 69.0 %.",
        ),
        (
            [("linear", 0.693), ("slda", 0.60)],
            "Use linear: it ends at 69.3 %, as good as weight_norm trained on everything at "
            "once (69.3 %).",
        ),
        (
            [("mean", 1.0), ("slda", 1.0), ("knn", 1.0)],
            "Use mean (slda, knn are as good): it ends at 100.0 %, 30.7 points above weight_norm "
            "trained on everything at once (69.3 %).",
        ),
        ([("linear", None)], "No head has learned anything: use a smaller learning rate."),
    ],
)
def test_the_sentence(rows: list[tuple[str, float | None]], sentence: str) -> None:
    ranking = pl.DataFrame(rows, schema={"head": pl.String, "accuracy": pl.Float64}, orient="row")
    assert advise(ranking, Bound("weight_norm", 0.693)) == sentence
