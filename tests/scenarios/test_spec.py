"""A scenario in words: written and read again, checked early, and built like the real one."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.catalogue.scenario_cards import KINDS, SCENARIOS, KindCard
from lastlayer.errors import OptionError, UnknownNameError
from lastlayer.scenarios import ScenarioSpec, incremental, lifelong
from lastlayer.scenarios.spec import GivenScenario
from small_data import small_data

columns = st.sampled_from(["session", "fine", "a column"])
labels = st.none() | columns
specs = st.one_of(
    st.builds(ScenarioSpec, st.sampled_from(list(SCENARIOS))),
    st.builds(ScenarioSpec, st.just("iid"), label=labels),
    st.builds(
        ScenarioSpec,
        st.just("incremental"),
        tasks=st.integers(1, 100) | st.lists(st.integers(1, 9), min_size=2).map(tuple),
        label=labels,
    ),
    st.builds(
        ScenarioSpec, st.sampled_from(["lifelong", "nested", "mixed"]), by=columns, label=labels
    ),
)


@given(specs)
def test_what_is_written_can_be_read(spec: ScenarioSpec) -> None:
    assert ScenarioSpec.parse(str(spec)) == spec
    assert hash(ScenarioSpec.parse(str(spec))) == hash(spec)


@pytest.mark.parametrize(
    "text",
    [
        "cifar10",
        "incremental:5",
        "incremental:4,3,3",
        "mixed:session",
        "lifelong:s/y",
        "iid/coarse",
    ],
)
def test_the_forms(text: str) -> None:
    assert str(ScenarioSpec.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("incremental", "needs 'tasks': write incremental:5"),
        ("mixed", "needs 'by': write mixed:COLUMN"),
        ("incremental:many", "tasks must be a number"),
        ("iid:5", "takes no 'by'"),
        ("cifar10:5", "takes no 'by'"),
        ("cifar10/coarse", "its own label"),
    ],
)
def test_what_does_not_fit_is_said(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ScenarioSpec.parse(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((None, None, None), "or --scenario iid if they have no order"),
        (("iid", "5", None), "got iid and incremental:5"),
        (("cifar100_mix", None, None, "fine"), "learns 'coarse', got --label fine"),
        (("mixed:a/b", None, None, "c"), "learns 'b', got --label c"),
        ((None, None, None, None, "core50"), "say how the rows come"),
    ],
)
def test_options_that_describe_no_scenario(options: tuple[str | None, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ScenarioSpec.from_options(*options)  # type: ignore[arg-type]


def test_options_describe_a_scenario() -> None:
    def described(*options: str | None) -> str:
        return str(ScenarioSpec.from_options(*options))  # type: ignore[arg-type]

    assert described(None, None, "month") == "mixed:month"
    assert described("iid/coarse", None, None, "coarse") == "iid/coarse"
    assert described(None, None, None, "fine", "cifar100") == "cifar100"


def test_a_list_of_tasks_is_a_tuple() -> None:
    spec = ScenarioSpec("incremental", tasks=[4, 3, 3])  # type: ignore[arg-type]
    assert hash(spec) == hash(ScenarioSpec.parse("incremental:4,3,3"))


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'incremental'"):
        ScenarioSpec.parse("incremetal:5")


@pytest.mark.parametrize("order", [0, 3])
def test_it_builds_the_scenario(order: int) -> None:
    data = small_data()
    for text, expected in [
        ("incremental:3", incremental(data, tasks=3, order=order)),
        ("lifelong:session", lifelong(data, by="session", order=order)),
    ]:
        built = ScenarioSpec.parse(text).build(data, order)
        assert built.order == expected.order
        assert all(a.equal(b) for a, b in zip(built.tasks, expected.tasks, strict=True))


def test_another_label_is_learned() -> None:
    assert ScenarioSpec.parse("iid/session").build(small_data(), order=0).n_classes == 3


def test_a_given_scenario_takes_its_test_rows_into_another_order() -> None:
    data = small_data()
    made = incremental(data, 2)
    tests = tuple(torch.tensor([task]) for task in range(made.n_tasks))
    with_tests = GivenScenario(dataclasses.replace(made, test_tasks=tests))
    there = with_tests.build(data, order=1)
    assert there.test_tasks is not None
    assert [int(rows) for rows in there.test_tasks] == list(there.order)
    without = GivenScenario(dataclasses.replace(made, test_tasks=None))
    assert without.build(data, order=1).test_tasks is None
    assert with_tests.label == made.label


def test_an_unknown_scenario_is_answered_with_every_kind_as_it_is_written() -> None:
    with pytest.raises(UnknownNameError) as caught:
        ScenarioSpec("wanderings")
    for card in KINDS.values():
        assert card.form in str(caught.value)


@pytest.mark.parametrize("card", KINDS.values(), ids=lambda card: card.name)
def test_a_kind_is_written_as_its_card_says(card: KindCard) -> None:
    spec = ScenarioSpec.parse(card.form)
    assert (spec.kind, str(spec)) == (card.name, card.form)
    given = {name for name in ("tasks", "by") if getattr(spec, name) is not None}
    assert given == ({card.argument} if card.argument else set())
