"""The paper's tables: complete, in our names, and judged by the stated rule."""

import subprocess
import sys
from math import sqrt

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.catalogue.head_cards import CODES
from lastlayer.paper import agree, beside, published
from lastlayer.paper.published_numbers import KEY, block_of
from lastlayer.study.plan_file import read_plan

points = st.floats(0, 100)
deviations = st.floats(0, 4.99)


def test_all_numbers_are_there() -> None:
    table = published()
    assert table.height == 530
    assert table["experiment"].value_counts().sort("count").rows() == [
        ("preliminary", 180),
        ("subset", 350),
    ]
    assert table.drop("lr", "subset").null_count().sum_horizontal().item() == 0
    cifar = table.filter(pl.col("features").str.starts_with("cifar"))
    assert (cifar.height, cifar.filter(pl.col("std") < 5).height) == (212, 165)


def test_names_are_ours() -> None:
    from lastlayer.catalogue.head_cards import HEADS  # noqa: PLC0415
    from lastlayer.paper.published_numbers import SELECTED  # noqa: PLC0415

    table = published()
    paper = {name for name, card in HEADS.items() if card.in_paper}
    assert set(table["head"]) == paper
    assert {n: c.lr for n, c in HEADS.items() if c.by_gradient} == SELECTED
    without = table.filter(pl.col("lr").is_null())
    assert set(without["head"]) == {n for n in paper if not HEADS[n].by_gradient}


@pytest.mark.parametrize(
    ("row", "mean", "std"),
    [
        (("cifar10/resnet20-cifar100", "class", "slda", "none", None, None), 66.90, 0.02),
        (("cifar100/resnet20-cifar100", "fine", "weight_norm", "none", 0.001, None), 21.35, 1.20),
        (("cifar100/resnet20-cifar100", "coarse", "cosine", "single", 0.1, None), 65.74, 0.06),
        (("cifar100/resnet20-cifar10", "fine", "mean", "none", None, None), 14.48, 0.00),
    ],
)
def test_a_number_is_found_by_our_names(row: tuple[object, ...], mean: float, std: float) -> None:
    found = beside(ours(*row, mean, std))
    assert found.select("published_mean", "published_std", "verdict").rows() == [
        (mean, std, "agrees")
    ]


def test_no_other_rate_is_taken_for_the_texts() -> None:
    row = ("cifar100/resnet20-cifar100", "coarse", "weight_norm", "single", 0.01, None)
    assert beside(ours(*row, 31.7, 4.0))["verdict"].to_list() == [None]


def test_the_plan_names_the_code_of_each_block() -> None:
    """The plan is where it was fixed; the report knows it for results without their plan."""
    plan, _ = read_plan("paper")
    found = {}
    for block in plan.experiment:
        for features in block.features if block.code else ():
            for scenario in block.scenario:
                for head in block.heads:
                    for size in block.subset:
                        mask = head.partition("+")[2] or "none"
                        key = (features, scenario.label, mask, None if size == "all" else size)
                        found.setdefault(key, set()).add(block.code[0])
                        assert set(block.code) == set(CODES)
    numbers = published().select("features", "label", "mask", "subset").unique().rows()
    assert set(numbers) <= set(found)
    for key in numbers:
        assert found[key] == {block_of(*key).code}, key


def test_what_was_not_published_stays_empty() -> None:
    row = ("mine", "class", "weight_norm", "group", 0.1, None)
    found = beside(ours(*row, 50.0, 1.0))
    assert found.select("published_mean", "published_std", "verdict").rows() == [(None, None, None)]


@given(points, deviations, points, deviations)
def test_the_rule(mean: float, std: float, published_mean: float, published_std: float) -> None:
    limit = max(0.5, 3 * sqrt((std**2 + published_std**2) / 8))
    expected = "agrees" if abs(mean - published_mean) < limit else "differs"
    assert agree(mean, std, published_mean, published_std) == expected
    assert agree(published_mean, published_std, mean, std) == expected


@given(points, deviations, points, st.floats(5, 40))
def test_a_wide_number_is_not_judged(mean: float, std: float, wide_mean: float, w: float) -> None:
    assert agree(mean, std, wide_mean, w) == "wide"


def test_no_torch_is_needed() -> None:
    code = (
        "import sys, lastlayer.paper as p, lastlayer.report; p.published(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def ours(*row: object) -> pl.DataFrame:
    return pl.DataFrame([dict(zip((*KEY, "mean", "std"), row, strict=True))])
