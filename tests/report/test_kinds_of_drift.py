"""Every scenario that has a name has a kind of drift on the page."""

import pytest

from lastlayer.catalogue.scenario_cards import SCENARIOS
from lastlayer.report.data_names import MEANING, drift_name


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_name_has_the_kind_that_its_description_says(name: str) -> None:
    assert drift_name(name) in MEANING
    said = SCENARIOS[name].description.partition(",")[0].removeprefix("class-")
    assert drift_name(name) == said
