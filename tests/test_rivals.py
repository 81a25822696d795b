"""The table beside what people use instead: our rows, made again by its program."""

import re
from pathlib import Path

import pytest
from benchmarks.rivals import Ours, Partly, measure, stream
from sklearn.naive_bayes import GaussianNB

TABLE = Path(__file__).parents[1] / "results" / "benchmarks" / "rivals.md"


def shown(name: str) -> float:
    (found,) = re.findall(
        rf"^\| {re.escape(name)} \| ([\d.]+) ", TABLE.read_text("utf-8"), re.MULTILINE
    )
    return float(found)


@pytest.mark.parametrize(
    "head", ["mean", "slda", pytest.param("random_slda", marks=pytest.mark.slow)]
)
def test_our_rows_are_as_shown(head: str) -> None:
    accuracy, _, size = measure(lambda: Ours(head), *stream(10_000))
    assert accuracy == pytest.approx(shown(f"lastlayer `{head}`"), abs=0.2)
    assert size > 0


def test_a_row_of_scikit_learns_is_as_shown() -> None:
    accuracy, _, _ = measure(lambda: Partly(GaussianNB()), *stream(10_000))
    assert accuracy == pytest.approx(shown("scikit-learn `GaussianNB`"), abs=0.2)
