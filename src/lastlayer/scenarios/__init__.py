"""Scenarios: row indices per task, computed from labels."""

from lastlayer.scenarios.continuum import from_continuum
from lastlayer.scenarios.kinds import iid, incremental, lifelong, mixed, nested, subset
from lastlayer.scenarios.scenario import Scenario, task_order
from lastlayer.scenarios.spec import GivenScenario, ScenarioSpec, make_scenario

__all__ = [
    "GivenScenario", "Scenario", "ScenarioSpec", "make_scenario",
    "incremental", "lifelong", "mixed", "nested", "iid", "subset", "task_order",
    "from_continuum",
]  # fmt: skip
