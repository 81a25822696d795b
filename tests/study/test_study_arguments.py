"""Wrong types given to the public functions of the study: each is named, with what was expected."""

from collections.abc import Callable

import polars as pl
import pytest

import lastlayer as ll
from lastlayer.errors import ArgumentError
from lastlayer.study import Run, ScenarioSpec, execute, rank, upper_bound
from lastlayer.study.plan_file import read_plan
from small_data import small_data

DATA = small_data(n=60)
SPEC = ScenarioSpec("incremental", tasks=3)
RANKING = pl.DataFrame({"head": ["slda"], "accuracy": [0.5]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ll.compare(None, "iid"), "data must be Features, got None"),
        (lambda: ll.compare(DATA, 5), "scenario must be text .*, got an int"),
        (
            lambda: ll.compare(DATA, "iid", "slda"),
            r"a list of names, such as \['slda'\], got a str",
        ),
        (lambda: ll.compare(DATA, "iid", 3), "heads must be a list of names"),
        (lambda: ll.compare(DATA, "iid", [3]), "heads must be names of heads, got an int"),
        (lambda: ll.compare(DATA, "iid", orders="3"), "orders must be an integer, got a str"),
        (lambda: ll.compare(DATA, "iid", orders=2.5), "orders must be an integer, got a float"),
        (lambda: ll.compare(DATA, "iid", orders=[0.5]), "an order must be an integer"),
        (lambda: ll.compare(DATA, "iid", ["linear"], 1, lr="fast"), "lr must be a learning rate"),
        (lambda: ll.compare(DATA, "iid", ["mean"], 1, preset=1), "must be 'exact' or 'paper'"),
        (lambda: ll.compare(DATA, "iid", ["mean"], 1, device=0), "device must be .*, got an int"),
        (lambda: upper_bound("cifar10", "iid"), "data must be Features, got a str"),
        (lambda: upper_bound(DATA, None), "scenario must be text"),
        (lambda: list(execute(5, {})), "runs must be a list of runs, got an int"),
        (lambda: list(execute([5], {})), "runs must be Run objects, got an int"),
        (lambda: list(execute([], [DATA])), "data must be features by name, got a list"),
        (lambda: list(execute([], {"a": 1})), r"data\['a'\] must be Features, got an int"),
        (lambda: list(execute([], {}, memory="1 GB")), "memory must be an integer, got a str"),
        (lambda: Run(5, SPEC, "mean"), "features must be text, got an int"),
        (lambda: Run("x", "iid", "mean"), "scenario must be a ScenarioSpec, got a str"),
        (lambda: Run("x", SPEC, None), "head must be text, got None"),
        (lambda: Run("x", SPEC, "mean", None), "mask must be text, got None"),
        (lambda: Run("x", SPEC, "linear", lr="0.1"), "lr must be a learning rate, got a str"),
        (lambda: Run("x", SPEC, "mean", order=1.0), "order must be an integer, got a float"),
        (lambda: Run("x", SPEC, "mean", seed=None), "seed must be an integer, got None"),
        (lambda: Run("x", ScenarioSpec("iid"), "mean", subset="all"), "subset must be an integer"),
        (lambda: ScenarioSpec(None), "kind must be the name or kind of a scenario, got None"),
        (lambda: ScenarioSpec("incremental", tasks="5"), "tasks must be an integer, got a str"),
        (
            lambda: ScenarioSpec("incremental", tasks=[2, None]),
            "a task must be an integer, got None",
        ),
        (lambda: ScenarioSpec("mixed", by=3), "by must be the name of a label column, got an int"),
        (lambda: ScenarioSpec.parse(3), "must be a scenario such as 'incremental:5', got"),
        (lambda: ll.load_study(None), "folder must be a str or a path object, got None"),
        (lambda: ll.load_study(b"runs"), "folder must be a str or a path object, got a bytes"),
        (lambda: rank([1]), "table must be a polars table, got a list"),
        (lambda: read_plan(None), "must be the name of a plan"),
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
        (lambda: ll.compare(DATA, "iid", ["mean"], orders=0), "must be from 1 to 10000, got 0"),
        (
            lambda: ll.compare(DATA, "iid", ["mean"], orders=10**26),
            "orders must be from 1 to 10000",
        ),
        (
            lambda: Run("x", ScenarioSpec("iid"), "mean", subset=10**12),
            "must be from 1 to 10000000",
        ),
        (lambda: Run("x", SPEC, "mean", order=2**32), "order must be from 0 to 4294967295"),
    ],
)
def test_a_value_that_cannot_be_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ll.errors.OptionError, match=message):
        call()
