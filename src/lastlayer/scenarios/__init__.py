"""Scenarios: row indices per task, computed from labels."""

from lastlayer.scenarios.continuum import from_continuum
from lastlayer.scenarios.kinds import incremental, lifelong, mixed, nested
from lastlayer.scenarios.named import make_scenario
from lastlayer.scenarios.orders import task_order
from lastlayer.scenarios.sampling import iid, subset
from lastlayer.scenarios.scenario import Scenario

__all__ = [
    "Scenario", "make_scenario",
    "incremental", "lifelong", "mixed", "nested", "iid", "subset", "task_order",
    "from_continuum",
]  # fmt: skip
