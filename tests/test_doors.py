"""Wrong types at the doors of public functions: our error, which is a TypeError and names them."""

import math
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
import torch

import lastlayer as ll
from lastlayer import analysis
from lastlayer.errors import (
    ArgumentError,
    DataError,
    OptionError,
    ShapeError,
    StateError,
)

Z = torch.arange(24.0).reshape(8, 3).sin()
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
DATA = ll.Features.from_arrays(Z, Y, test=(Z, Y))
NO_NUMBERS = [
    None,
    "three",
    b"3",
    object(),
    [None],
    {},
    int,
    1j,
    Z.to_sparse(),
    Z.to("meta"),
    10**30,
]


def head() -> ll.heads.Head:
    made = ll.make_head("slda", in_features=3)
    made.observe(Z, Y)
    return made


@pytest.mark.parametrize("wrong", NO_NUMBERS, ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize(
    "function",
    [
        analysis.class_norms, analysis.angles_between, analysis.interference_risk,
        analysis.largest_risk, analysis.repair_shares, analysis.shapley_values,
        analysis.shapley_shares, analysis.final_accuracy, analysis.average_accuracy,
        analysis.average_forgetting, analysis.backward_transfer, analysis.forward_transfer,
        lambda x: analysis.norm_change(np.eye(3), x), lambda x: analysis.bias_change(x, np.eye(3)),
        lambda x: analysis.weight_change(x, x), lambda x: analysis.share(x, np.array([1])),
        lambda x: analysis.share_of_all(np.array([1]), x),
        lambda x: analysis.paired_difference(np.zeros(3), x),
        lambda x: analysis.after_each_task(x, [0]), lambda x: analysis.forgotten(np.eye(2), x),
        lambda x: analysis.data_angles(x, np.array([0]), np.eye(2)),
        lambda x: analysis.first_seen([x], 3), lambda x: analysis.riskiest_pairs(x, 1),
    ],
)  # fmt: skip
def test_the_analysis_takes_arrays_of_numbers(
    function: Callable[[object], object], wrong: object
) -> None:
    said = r"^\w+( \w+)? must hold (real |whole )?(numbers|True and False), got "
    with pytest.raises(ArgumentError, match=said):
        function(wrong)


def test_the_analysis_takes_numbers_from_wherever_they_come() -> None:
    rows = [[3.0, 4.0], [0.0, 2.0]]
    for given in (rows, np.array(rows), np.array(rows, "f2"), torch.tensor(rows)):
        assert analysis.class_norms(given).tolist() == [5.0, 2.0]  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="weight must be an array without a mask"):
        analysis.class_norms(np.ma.masked_array(rows, mask=[[0, 1], [0, 0]]))
    with pytest.raises(ArgumentError, match="y must hold whole numbers, got bool"):
        analysis.data_angles(np.eye(2), np.array([True, False]), np.eye(2))


CALLS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "rows": (lambda: analysis.class_norms(np.zeros(3)), ShapeError, r"shape \(…, C, h\)"),
    "no order": (lambda: analysis.after_each_task(np.eye(2), 3), ShapeError, "row of whole"),
    "k": (lambda: analysis.riskiest_pairs(np.eye(2), 1.5), ArgumentError, "k must be an integer"),
    "nth": (lambda: analysis.forgotten(np.zeros((3, 2)), [0, 1], 2), OptionError, "from 0 to 1"),
    "classes": (lambda: analysis.first_seen([np.array([3])], 3), ValueError, "task 0 must be"),
    "many classes": (lambda: analysis.first_seen([], 2**40), OptionError, "from 0 to 10000000"),
    "verdicts": (lambda: analysis.all_hold(["perhaps"]), OptionError, "'holds', got 'perhaps'"),
    "no verdicts": (lambda: analysis.any_holds(3), ArgumentError, "a list of verdicts"),
    "shares": (lambda: analysis.share(np.ones(2, int), np.ones(3, int)), ShapeError, r"\(2,\)"),
    "before": (lambda: analysis.forward_transfer(np.eye(2), np.ones(3)), ShapeError, "in 2 acc"),
    "flag": (lambda: ll.make_head("qda", 3, diagonal=Z), ArgumentError, "diagonal must be"),
    "scatter": (lambda: ll.make_head("slda", 3, per_class_scatter=1), ArgumentError, "True or"),
    "prior": (lambda: ll.make_head("slda", 3, prior=Z), ArgumentError, "'uniform' or 'empirical'"),
    "other prior": (lambda: ll.make_head("qda", 3, prior="flat"), OptionError, "got 'flat'"),
    "weigh": (lambda: ll.make_head("ridge", 3, weigh=Z), ArgumentError, "'samples' or 'classes'"),
    "penalty": (lambda: ll.make_head("ridge", 3, penalty=Z), OptionError, "penalty must be 'auto'"),
    "shrinkage": (lambda: ll.make_head("slda", 3, shrinkage=Z), OptionError, "must be 'oas'"),
    "preset": (lambda: ll.make_head("mean", 3, preset=Z), ArgumentError, "'exact' or 'paper'"),
    "steps": (lambda: ll.make_head("sampled_linear", 3, steps=Z), ArgumentError, "steps must be"),
    "budget": (lambda: ll.make_head("qda", 3, budget=Z), ArgumentError, "a budget in bytes"),
    "size": (lambda: ll.make_head("qda", Z), ArgumentError, "in_features must be an integer"),
    "width": (lambda: ll.make_head("random_ridge", 3, width=Z), ArgumentError, "a width"),
    "dtype": (lambda: head().as_linear(int), ArgumentError, "dtype must be a floating-point type"),
    "whole dtype": (lambda: head().as_linear(torch.int32), ArgumentError, "torch.int32"),
    "no state": (lambda: head().load_state_dict({}), StateError, "state of such a 'slda' head"),
    "wrong state": (lambda: head().load_state_dict({"seen": 3}), StateError, "of such a 'slda'"),
    "no head": (lambda: head().merge(3), ArgumentError, "other must be a head, got an int"),
    "surrogate": (lambda: head().save("\ud800"), OptionError, "path must name a file"),
    "long path": (lambda: ll.load_study("x" * 3000), OptionError, "at most 255 bytes"),
    "long folder": (lambda: ll.report.write("x" * 3000), OptionError, "at most 255 bytes"),
    "no folder": (lambda: ll.report.write(3), ArgumentError, "folder must be a str"),
    "no mean": (lambda: ll.paper.agree("1", 1, 1, 1), ArgumentError, "mean must be a number"),
    "no table": (lambda: ll.paper.beside({}), ArgumentError, "ours must be a polars DataFrame"),
    "columns": (lambda: ll.paper.beside(pl.DataFrame({"head": []})), DataError, "lr, mask, mean"),
    "progress": (lambda: ll.compare(DATA, "iid", ["mean"], progress=Z), ArgumentError, "progress"),
    "advised data": (lambda: ll.advise(Z), ArgumentError, "data must be Features, or a FeatureSet"),
    "stream": (lambda: ll.advise(DATA, 3), ArgumentError, "scenario must be a scenario"),
    "a need": (lambda: ll.advise(DATA, linear=1), ArgumentError, "linear must be True or False"),
    "latency": (lambda: ll.advise(DATA, latency=math.nan), OptionError, "latency must be finite"),
    "candidates": (lambda: ll.advise(DATA, heads="mean"), ArgumentError, "a list of names"),
    "by": (lambda: ll.scenarios.mixed(DATA, by=Z), ArgumentError, "the name of a label column"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "said"), CALLS.values(), ids=CALLS)
def test_what_cannot_be_meant_is_named(
    call: Callable[[], object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        call()
    assert isinstance(caught.value, ll.errors.LastLayerError)


def test_agreement_is_a_matter_of_three_errors_of_the_mean() -> None:
    """Of eight runs with a deviation of 1 on both sides, 3·√(2/8) = 1.5 points."""
    assert ll.paper.agree(71.49, 1.0, 70.0, 1.0) == "agrees"
    assert ll.paper.agree(71.51, 1.0, 70.0, 1.0) == "differs"
    assert ll.paper.agree(70.49, 0.0, 70.0, 0.0) == "agrees"
    assert ll.paper.agree(math.nan, 0.0, 70.0, 0.0) == "differs"
    assert ll.paper.agree(70.0, 0.0, 70.0, 5.0) == "wide"


def test_shares_are_of_counts_and_of_at_least_one_sample() -> None:
    assert analysis.share(np.array([0, 1, 1]), np.array([1, 1, 2])).tolist() == [0.0, 1.0, 0.5]
    for right, of in ((np.array(1), np.array([1])), (np.ones((2, 2), int), np.ones((2, 2), int))):
        with pytest.raises(ShapeError, match=r"must be \(…, N\) of \(N,\) samples"):
            analysis.share_of_all(right, of)
