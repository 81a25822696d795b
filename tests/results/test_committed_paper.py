"""The committed results of the plan ``paper``: what must be so, whatever the numbers are."""

from pathlib import Path

import polars as pl
import pytest

from lastlayer.paper.reproduction import count_agreement

PAPER = Path(__file__).parents[2] / "results" / "paper"
SAME = ("features", "scenario", "head", "start", "gain", "batch_size", "order", "seed")


@pytest.fixture(scope="module")
def runs() -> pl.DataFrame:
    return pl.read_csv(PAPER / "runs.csv", infer_schema_length=None)


def test_single_is_group_where_a_batch_has_one_class(runs: pl.DataFrame) -> None:
    """In cifar100_mix, to the digit, for every layer, start and gain; elsewhere not."""
    for scenario, same in (("cifar100_mix", True), ("cifar10", False)):
        mine = runs.filter(scenario=scenario, preset="paper")
        single, group = (mine.filter(mask=mask) for mask in ("single", "group"))
        both = single.join(group, on=SAME, nulls_equal=True)
        assert both.height == single.height == group.height == 9 * 8  # 5 layers, starts and gains
        assert (both["final"] == both["final_right"]).all() is same
        assert (both["lost"] == both["lost_right"]).all() is same


def test_every_block_ran_with_both_codes(runs: pl.DataFrame) -> None:
    iid = runs.filter(pl.col("n_tasks") == 1, pl.col("lr").is_not_null(), preset="paper")
    key = ("features", "scenario", "head", "mask", "lr", "subset", "seed")
    sizes = iid.group_by(key).agg(pl.col("batch_size").sort())["batch_size"].to_list()
    assert all(size == [256, 264] for size in sizes)


def test_what_agrees_is_counted_from_the_tables() -> None:
    table = pl.read_csv(PAPER / "tables" / "published.csv", infer_schema_length=None)
    counts = count_agreement(table)
    clean = table.filter(pl.col("published_std") < 5)
    assert (table.height, clean.height) == (212, 165)
    once = clean.filter(again=False).height
    assert {of for _, of in counts.values()} == {once}
    agree, _ = counts["block"]
    assert agree >= once - 4  # two or so by chance
    assert all(counts[code][0] < agree for code in ("may", "september"))
