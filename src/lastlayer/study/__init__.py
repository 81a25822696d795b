"""The study: runs, their results, and the comparison of heads."""

from lastlayer.scenarios.spec import ScenarioSpec
from lastlayer.study.comparison import Bound, compare, rank, upper_bound
from lastlayer.study.execute import execute
from lastlayer.study.result import Failure, Outcome, Result
from lastlayer.study.run import Run

__all__ = [
    "Bound", "Failure", "Outcome", "Result", "Run", "ScenarioSpec",
    "compare", "execute", "rank", "upper_bound",
]  # fmt: skip
