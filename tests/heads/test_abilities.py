"""With options other than the default ones a head still can do what it claims, and nothing else."""

from functools import partial
from typing import Any

import pytest
import test_battery
from streams import make_head

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("linear", {"lr": 1.0}),
    ("weight_norm", {"gain": "frozen"}),
    ("cosine", {"scale": -2.0}),
    ("cosine", {"scale": 3.0, "learn_scale": True}),
    ("mean", {"half_life": 20.0}),
    ("slda", {"half_life": 20.0}),
    ("slda", {"per_class_scatter": True, "prior": "empirical"}),
    ("ridge", {"half_life": 20.0}),
    ("ridge", {"per_class_scatter": True, "weigh": "classes"}),
    ("knn", {"budget": 10}),
    ("random_ridge", {"rows": "unit"}),
    ("random_slda", {"map": "quadratic", "width": 90, "rows": "unit"}),
    ("random_ridge", {"map": "quadratic", "width": 90, "rows": "unit"}),
]
CLAIMS = (
    test_battery.test_a_head_is_a_linear_layer_or_it_does_not_say_so,
    test_battery.test_order_and_batches_do_not_matter_or_it_does_not_say_so,
    test_battery.test_rows_are_kept_or_it_does_not_say_so,
    test_battery.test_a_merge_equals_the_union_or_raises,
    test_battery.test_forgetting_is_as_if_never_seen_or_raises,
    partial(test_battery.test_forgetting_a_class_is_as_if_never_seen_or_raises, gone=3),
)


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_what_it_claims_is_true(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_battery, "make_head", partial(make_head, **options))
    for proves in CLAIMS:
        proves(name=name, preset="exact")
