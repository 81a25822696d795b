"""Start, gain and batch size: a plan names them for a block, and its heads are trained so."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from lastlayer.catalogue.head_cards import CODES
from lastlayer.evaluate.fleet import Member, train_fleet
from lastlayer.evaluate.pool import Pool, Rules, Schedule
from lastlayer.results import load_study
from lastlayer.study import Run, ScenarioSpec, execute
from lastlayer.study.conduct import conduct
from lastlayer.study.plan_file import Plan
from lastlayer.study.prepare import prepare
from small_data import small_data

STREAM = ScenarioSpec("incremental", tasks=3)


def plan_of(**block: Any) -> Plan:
    block = {"features": "small.safetensors", "scenario": "incremental:3", **block}
    return Plan.model_validate({"preset": "paper", "seeds": "0", "experiment": [block]})


def runs_of(**block: Any) -> list[Run]:
    plan = plan_of(**block)
    (experiment,) = plan.experiment
    runs = list(experiment.runs(plan))
    assert len(runs) == experiment.count(plan)
    return runs


def ways(runs: list[Run]) -> list[tuple[object, ...]]:
    return [(run.head_name, run.start, run.gain, run.batch_size) for run in runs]


def test_a_block_names_them_for_all_its_heads() -> None:
    heads = ["linear+single", "weight_norm", "cosine", "slda"]
    assert ways(runs_of(heads=heads, start=["uniform", "normal"], gain="frozen")) == [
        ("linear+single", "uniform", None, 264),
        ("linear+single", "normal", None, 264),
        ("weight_norm", None, "frozen", 264),
        ("cosine", None, None, 264),
        ("slda", None, None, None),
    ]
    assert ways(runs_of(heads=heads, code=["may", "september"], why="both")) == [
        ("linear+single", "uniform", None, 264),
        ("linear+single", "normal", None, 256),
        ("weight_norm", None, "unit", 264),
        ("weight_norm", None, "frozen", 256),
        ("cosine", None, None, 264),
        ("cosine", None, None, 256),
        ("slda", None, None, None),
    ]
    assert ways(runs_of(heads="linear", preset="exact", start="normal")) == [
        ("linear", None, None, 264)  # exact rows start at zero
    ]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"code": "may"}, "'code' and 'why' go together"),
        ({"why": "so"}, "'code' and 'why' go together"),
        ({"code": "may", "why": "so", "gain": "unit"}, "a block takes either 'code' or 'start'"),
        ({"code": "june", "why": "so"}, "unknown code of the authors 'june'"),
        ({"start": "norml"}, "did you mean 'normal'"),
        ({"gain": "fixed"}, "unknown gain 'fixed'"),
        ({"batch_size": 1}, "greater than or equal to 2"),
        ({"start": []}, "at least 1"),
    ],
)
def test_slips_are_named(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        plan_of(**block)


@pytest.mark.parametrize("head", ["linear", "weight_norm", "original_weight_norm"])
def test_a_run_is_trained_as_it_says(head: str) -> None:
    """A run of each code gives the numbers of the fleet that is told the same."""
    data = small_data()
    first = Run("small", STREAM, head, "single", "paper")
    has = {"start": first.start is not None, "gain": first.gain is not None, "batch_size": True}
    runs = [
        replace(first, **{name: value for name, value in vars(code).items() if has[name]})
        for code in CODES.values()
    ]
    found = {outcome.run: outcome for outcome in execute(runs, {"small": data}, device="cpu")}
    n_classes = int(data.train.y.max()) + 1
    pool = Pool(data.train.z, data.train.y, data.test.z, data.test.y, n_classes)
    stream = Schedule(STREAM.build(data, 0).tasks, 0, 1)
    for run in runs:
        member = Member(run.head, run.mask, run.lr, run.seed, run.start, run.gain)
        rules = Rules(batch_size=run.batch_size or 0)
        ((score,),) = train_fleet(pool, [stream], [[member]], "paper", rules)
        np.testing.assert_array_equal(found[run].right_by_class, score.by_class.numpy())
    first_, second = (found[run].right_by_class for run in runs)
    assert not np.array_equal(first_, second)


def test_they_are_stored_and_a_study_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "small.safetensors"
    small_data().save(data)
    blocks = [{"heads": ["linear"]}, {"heads": ["linear", "mean"], "start": ["uniform", "normal"]}]
    for block in blocks:
        plan = plan_of(**block, features=str(data))
        conduct(prepare(plan, tmp_path), "text", tmp_path / "out", version="1", device="cpu")
    study = load_study(tmp_path / "out")
    columns = study.runs.select("head", "start", "gain", "batch_size", "state").rows()
    assert columns == [  # the first is of the first plan, and was not made again
        ("linear", "uniform", None, 264, "done"),
        ("linear", "normal", None, 264, "done"),
        ("mean", None, None, None, "done"),
    ]
