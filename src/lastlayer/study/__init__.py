"""The study: runs, their results, and the comparison of heads."""

from lastlayer.study.comparison import compare, upper_bound
from lastlayer.study.heads.execute import execute
from lastlayer.study.heads.run import Run
from lastlayer.study.ranking import Bound, rank
from lastlayer.study.result import Failure, Outcome, Result
from lastlayer.study.scenario_spec import ScenarioSpec

__all__ = [
    "Bound", "Failure", "Outcome", "Result", "Run", "ScenarioSpec",
    "compare", "execute", "rank", "upper_bound",
]  # fmt: skip
