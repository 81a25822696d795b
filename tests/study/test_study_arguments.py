"""Wrong types given to the public functions of the study: each is named, with what was expected."""

from collections.abc import Callable

import polars as pl
import pytest
from small_data import small_data

import lastlayer as ll
from lastlayer.errors import ArgumentError
from lastlayer.study import Run, ScenarioSpec, execute, rank, upper_bound
from lastlayer.study.plan import read_plan

DATA = small_data(n=60)
SPEC = ScenarioSpec("incremental", tasks=3)
RANKING = pl.DataFrame({"head": ["slda"], "accuracy": [0.5]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ll.compare(None, "iid"), "expected Features as data, got None"),
        (lambda: ll.compare(DATA, 5), "expected a scenario as text .*, got an int"),
        (
            lambda: ll.compare(DATA, "iid", "slda"),
            r"a list of heads, such as \['slda'\], got a str",
        ),
        (lambda: ll.compare(DATA, "iid", 3), "expected a list of heads"),
        (lambda: ll.compare(DATA, "iid", [3]), "expected names of heads as heads, got an int"),
        (lambda: ll.compare(DATA, "iid", orders="3"), "a whole number as orders, got a str"),
        (lambda: ll.compare(DATA, "iid", orders=2.5), "a whole number as orders, got a float"),
        (lambda: ll.compare(DATA, "iid", orders=[0.5]), "a whole number as an order"),
        (lambda: ll.compare(DATA, "iid", ["linear"], 1, lr="fast"), "a learning rate as lr"),
        (lambda: ll.compare(DATA, "iid", ["mean"], 1, preset=1), "'exact' or 'paper' as preset"),
        (lambda: ll.compare(DATA, "iid", ["mean"], 1, device=0), "as device, got an int"),
        (lambda: upper_bound("cifar10", "iid"), "expected Features as data, got a str"),
        (lambda: upper_bound(DATA, None), "expected a scenario as text"),
        (lambda: list(execute(5, {})), "expected runs as runs, got an int"),
        (lambda: list(execute([5], {})), "expected Run objects as runs, got an int"),
        (lambda: list(execute([], [DATA])), "expected features by name as data, got a list"),
        (lambda: list(execute([], {"a": 1})), r"expected Features as data\['a'\], got an int"),
        (lambda: list(execute([], {}, memory="1 GB")), "a whole number as memory, got a str"),
        (lambda: Run(5, SPEC, "mean"), "expected text as features, got an int"),
        (lambda: Run("x", "iid", "mean"), "expected a ScenarioSpec as scenario, got a str"),
        (lambda: Run("x", SPEC, None), "expected text as head, got None"),
        (lambda: Run("x", SPEC, "mean", None), "expected text as mask, got None"),
        (lambda: Run("x", SPEC, "linear", lr="0.1"), "a learning rate as lr, got a str"),
        (lambda: Run("x", SPEC, "mean", order=1.0), "a whole number as order, got a float"),
        (lambda: Run("x", SPEC, "mean", seed=None), "a whole number as seed, got None"),
        (lambda: Run("x", ScenarioSpec("iid"), "mean", subset="all"), "as subset, got a str"),
        (lambda: ScenarioSpec(None), "the name or kind of a scenario as kind, got None"),
        (lambda: ScenarioSpec("incremental", tasks="5"), "a whole number as tasks, got a str"),
        (lambda: ScenarioSpec("incremental", tasks=[2, None]), "the classes of a task, got None"),
        (lambda: ScenarioSpec("mixed", by=3), "the name of a label column as by, got an int"),
        (lambda: ScenarioSpec.parse(3), "a scenario such as 'incremental:5' as text, got an int"),
        (lambda: ll.load_study(None), "expected a path as folder, got None"),
        (lambda: ll.load_study(b"runs"), "expected a path as folder, got a bytes"),
        (lambda: rank([1]), "expected a polars table as table, got a list"),
        (lambda: read_plan(None), "expected the name of a plan"),
    ],
)
def test_a_wrong_type_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as raised:
        call()
    assert isinstance(raised.value, TypeError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank(RANKING), "got no column mask, order, task, epoch"),
        (lambda: rank(RANKING.clear()), "got no column"),
        (lambda: ll.compare(DATA, "iid", ["mean"], orders=0), "orders from 1 to 10000, got 0"),
        (lambda: ll.compare(DATA, "iid", ["mean"], orders=10**26), "orders from 1 to 10000"),
        (lambda: Run("x", ScenarioSpec("iid"), "mean", subset=10**12), "subset from 1 to 10000000"),
        (lambda: Run("x", SPEC, "mean", order=2**32), "order from 0 to 4294967295"),
    ],
)
def test_a_value_that_cannot_be_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ll.errors.OptionError, match=message):
        call()
