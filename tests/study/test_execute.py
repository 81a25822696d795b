"""Making runs: grouped or alone the same, in canonical numbers, and failures are values."""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from lastlayer.catalogue.head_cards import PAPER_HEADS, split_name
from lastlayer.data import Features
from lastlayer.errors import OptionError, UnknownNameError
from lastlayer.evaluate.one_pass import feed
from lastlayer.evaluate.pool import shuffled_batches
from lastlayer.heads import make_head
from lastlayer.scenarios import subset
from lastlayer.study import Failure, Result, Run, ScenarioSpec, execute
from small_data import N_CLASSES, H, small_data

DATA = {"small": small_data()}
SPEC = ScenarioSpec("incremental", tasks=3)


def run(head: str, spec: ScenarioSpec = SPEC, order: int = 0, **more: object) -> Run:
    return Run("small", spec, *split_name(head), order=order, **{"seed": order, **more})


def make(runs: Iterable[Run], data: dict[str, Features] = DATA) -> dict[Run, Result]:
    """Make runs none of which fails."""
    outcomes = list(execute(runs, data, device="cpu"))
    assert all(isinstance(outcome, Result) for outcome in outcomes), outcomes
    return {outcome.run: outcome for outcome in outcomes}


def test_every_head_has_a_result_of_the_right_shape() -> None:
    runs = [run(head, order=order) for head in PAPER_HEADS for order in (0, 1)]
    results = make(runs)
    assert set(results) == set(runs)
    for result in results.values():
        assert (result.n_tasks, result.epochs, result.diverged) == (3, 5, None)
        assert result.by_class.shape == (16, N_CLASSES)
        assert result.by_task.shape == (16, 3)
        assert np.isnan(result.accuracy[0])
        assert np.nanmax(result.accuracy) <= 1
        assert result.final > 1 / N_CLASSES
        np.testing.assert_allclose(
            result.accuracy, result.by_class @ result.n_per_class / result.n_per_class.sum()
        )


def test_a_run_is_the_same_alone_and_among_others() -> None:
    heads = ("linear", "weight_norm+group", "slda", "knn")
    runs = [run(head, order=order, preset="paper") for head in heads for order in range(3)]
    together = make(runs)
    for one in runs[::2]:
        (alone,) = make([one]).values()
        np.testing.assert_allclose(alone.by_class, together[one].by_class, atol=1 / 50)


def test_a_gradient_run_is_the_head_fed_by_hand() -> None:
    one = run("cosine+single", order=1, preset="paper")
    data, (result,) = DATA["small"], make([one]).values()
    head = make_head("cosine+single", H, N_CLASSES, preset="paper", seed=1)
    for rows in SPEC.build(data, order=1).tasks:
        generator = torch.Generator().manual_seed(1)
        for _ in range(5):
            for positions in shuffled_batches(len(rows), 264, generator):
                batch = rows[positions]
                head.observe(data.train.z[batch], data.train.y[batch])
    right = (head.predict(data.test.z) == data.test.y).double().mean().item()
    assert result.final == pytest.approx(right, abs=1 / len(data.test))


def test_test_tasks_are_numbered_as_in_order_0() -> None:
    order = 1
    (result,) = make([run("mean", order=order)]).values()
    assert result.task_order == (0, 2, 1)
    for task, number in enumerate(result.task_order):
        known = set(result.task_order[: task + 1])
        after = result.by_task[(task + 1) * result.epochs]
        assert {i for i in range(3) if after[i] > 0} == known, number


def test_test_data_of_no_task_have_no_columns() -> None:
    data = small_data()
    test = (data.test.z, data.test.y, {"session": data.test.labels["session"] + 3})
    other = Features.from_arrays(
        data.train.z, data.train.y, test=test, session=data.train.labels["session"]
    )
    spec = ScenarioSpec("lifelong", by="session")
    (result,) = make([run("mean", spec)], {"small": other}).values()
    assert result.by_task.shape == (16, 0)
    assert result.final > 0.5


def test_a_subset_is_drawn_and_repeated_as_in_the_paper() -> None:
    iid = ScenarioSpec("iid")
    one = run("linear", iid, preset="paper", seed=2, subset=300)
    data, (result,) = DATA["small"], make([one]).values()
    (rows,) = subset(data, 300, seed=2).tasks
    head = make_head("linear", H, N_CLASSES, preset="paper", seed=2)
    generator = torch.Generator().manual_seed(2)
    for _ in range(5 * (50_000 // 300)):
        for positions in shuffled_batches(300, 264, generator):
            head.observe(data.train.z[rows[positions]], data.train.y[rows[positions]])
    right = (head.predict(data.test.z) == data.test.y).double().mean().item()
    assert result.final == pytest.approx(right, abs=1 / len(data.test))


def test_small_data_are_repeated_under_exact_only() -> None:
    finals = {
        preset: make([run("cosine+single", preset=preset)]).popitem()[1].final
        for preset in ("exact", "paper")
    }
    assert finals["exact"] > 0.9 > finals["paper"]


def test_a_diverging_run_is_marked_and_hurts_nobody() -> None:
    good, bad = run("linear"), run("linear", lr=1e38)
    results = make([good, bad])
    lost = results[bad]
    assert lost.diverged is not None
    assert np.isnan(lost.accuracy[-1])
    assert np.isnan(lost.by_class[-1]).all()
    (alone,) = make([good]).values()
    assert results[good].diverged is None
    np.testing.assert_array_equal(results[good].accuracy, alone.accuracy)


def test_what_cannot_be_made_fails_and_the_rest_runs() -> None:
    missing = run("mean", ScenarioSpec("mixed", by="place"))
    elsewhere = Run("smal", SPEC, "mean")
    uneven = run("mean", ScenarioSpec("incremental", tasks=4))
    fine = run("mean")
    outcomes = {o.run: o for o in execute([missing, elsewhere, uneven, fine], DATA)}
    assert isinstance(outcomes[fine], Result)
    for one, message in [
        (missing, "unknown label column 'place'"),
        (elsewhere, "did you mean 'small'"),
        (uneven, "divide the 6 classes"),
    ]:
        failure = outcomes[one]
        assert isinstance(failure, Failure)
        assert message in failure.message


def test_a_budget_too_small_fails_gradient_runs_only() -> None:
    runs = [run("linear"), run("mean")]
    outcomes = {o.run.head: o for o in execute(runs, DATA, device="cpu", memory=1)}
    assert isinstance(outcomes["mean"], Result)
    assert isinstance(outcomes["linear"], Failure)
    assert "memory must be at least" in outcomes["linear"].message


def test_a_class_that_is_never_trained_is_named() -> None:
    data = small_data()
    known = data.train.y != 4
    labels = [f"class {c}" for c in range(N_CLASSES)]
    part = Features.from_arrays(
        data.train.z[known],
        [labels[c] for c in data.train.y[known]],
        test=(data.test.z, [labels[c] for c in data.test.y]),
    )
    iid = run("mean", ScenarioSpec("iid"))
    with pytest.warns(UserWarning, match="without training data, class 4: no head can know"):
        (result,) = make([iid], {"small": part}).values()
    assert result.by_class[-1, 4] == 0
    assert result.final > 0.6


def test_progress_ends_at_all_there_is() -> None:
    told: list[tuple[int, int]] = []
    runs = [run("linear"), run("mean"), Run("nowhere", SPEC, "mean")]
    list(execute(runs, DATA, device="cpu", progress=lambda done, total: told.append((done, total))))
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len({total for _, total in told}) == 1


def test_devices() -> None:
    with pytest.raises(UnknownNameError, match="unknown device 'gpu'"):
        next(execute([run("mean")], DATA, device="gpu"))
    if not torch.cuda.is_available():
        with pytest.raises(OptionError, match="finds no GPU"):
            next(execute([run("mean")], DATA, device="cuda"))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_make_no_difference(threads: int) -> None:
    runs = [run(head, order=order) for head in ("cosine+group", "slda", "knn") for order in (0, 1)]
    expected = make(runs)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        found = make(runs)
    finally:
        torch.set_num_threads(before)
    for one in runs:
        np.testing.assert_allclose(found[one].by_class, expected[one].by_class, atol=1 / 50)


def test_statistics_of_tasks_stay_within_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def watch(*args: Any, memory: int, **options: Any) -> Any:
        given.append(memory)
        return feed(*args, memory=memory, **options)

    monkeypatch.setattr(sys.modules[execute.__module__], "feed", watch)
    runs = [run("slda", order=order) for order in (0, 1)]
    outcomes = list(execute(runs, DATA, device="cpu", memory=1000))
    assert all(isinstance(outcome, Result) for outcome in outcomes)
    assert given
    assert max(given) <= 1000
