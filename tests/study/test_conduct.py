"""Conducting a study: nothing is made twice, and what goes wrong loses nothing."""

import json
from pathlib import Path

import numpy as np
import pytest

from lastlayer.analysis import FATES, INTERFERENCE, REPAIRS, trace_losses
from lastlayer.catalogue.head_cards import PAPER_HEADS
from lastlayer.data import Features, load_features
from lastlayer.errors import BusyError, FileFormatError, PlanError, WriteError
from lastlayer.evaluate.costs import RETRAINED
from lastlayer.results import Study, load_study
from lastlayer.results.store import open_store
from lastlayer.study import upper_bound
from lastlayer.study.conduct import Callbacks, conduct
from lastlayer.study.plan_file import Plan
from lastlayer.study.prepare import Prepared, prepare
from lastlayer.study.result import Outcome, Result
from small_data import N_CLASSES, H, small_data

INCREMENTAL = {"scenario": "incremental:3", "heads": ["linear", "cosine+single", "mean", "knn"]}


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> str:
    small_data().save(tmp_path / "small.safetensors")
    return str(tmp_path / "small.safetensors")


def plan_of(*experiments: dict[str, object], seeds: str = "0-1") -> Plan:
    return Plan.model_validate({"preset": "paper", "seeds": seeds, "experiment": list(experiments)})


def make(
    plan: Plan, folder: Path, features: Path = Path("features")
) -> tuple[Study, list[Outcome]]:
    made: list[Outcome] = []
    conduct(
        prepare(plan, features),
        "text",
        folder,
        version="1",
        callbacks=Callbacks(on_kept=made.extend),
    )
    return load_study(folder), made


def test_every_run_is_kept_with_its_measures(file: str, tmp_path: Path) -> None:
    plan = plan_of({"features": file, **INCREMENTAL})
    study, made = make(plan, tmp_path / "out")
    assert len(made) == study.done.height == 8
    results = {outcome.run: outcome for outcome in made if isinstance(outcome, Result)}
    for row in study.done.iter_rows(named=True):
        (result,) = (
            r for run, r in results.items() if (run.head, run.order) == (row["head"], row["order"])
        )
        assert row["final"] == result.final
        assert row["label"] == "y"
        assert row["n_tasks"] == 3
        order = list(result.task_order)
        after = result.by_task[result.epochs :: result.epochs][:, order]
        assert row["forgetting"] == pytest.approx(
            np.mean([after[j:2, j].max() - after[2, j] for j in range(2)])
        )
        assert (row["lost"] is None) == (row["head"] == "knn")
    assert study.about["plan"] == "text"
    assert study.data[file].in_features == H


def test_what_retraining_reaches_is_kept_with_the_data_and_made_once(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of({"features": file, **INCREMENTAL})
    study, _ = make(plan, tmp_path / "out")
    expected = upper_bound(load_features(file), "incremental:3", device="cpu").accuracy
    assert study.data[file].references == {"y": expected}
    assert expected > study.done["final"].mean()

    def again(*_: object, **__: object) -> None:
        raise AssertionError("it was retrained again")

    monkeypatch.setattr("lastlayer.evaluate.softmax.reference", again)
    study, made = make(plan, tmp_path / "out")
    assert made == []
    assert study.data[file].references == {"y": expected}


def test_data_that_are_too_large_to_retrain_on_have_no_reference(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RETRAINED, "cpu", 1.0)
    study, made = make(plan_of({"features": file, **INCREMENTAL}), tmp_path / "out")
    assert len(made) == study.done.height == 8
    assert study.data[file].references == {}


@pytest.mark.parametrize("odd", ['{"y": 2.0}', '{"y": "a"}', "[]", '{"y": NaN}', "7"])
def test_references_that_are_none_are_refused_and_made_again(
    file: str, tmp_path: Path, odd: str
) -> None:
    plan = plan_of({"features": file, **INCREMENTAL})
    first, _ = make(plan, tmp_path / "out")
    with open_store(tmp_path / "out") as store:
        known = first.data[file]
        about = {"names": known.names, "origin": known.origin, "n_train": 9, "n_test": 9,
                 "in_features": H, "references": json.loads(odd)}  # fmt: skip
        store.describe("text", {file: (known.fingerprint, about)}, version="1")
    with pytest.raises(FileFormatError, match="references must be shares from 0 to 1 by label"):
        load_study(tmp_path / "out")
    again, made = make(plan, tmp_path / "out")
    assert made == []
    assert again.data[file].references == first.data[file].references


def test_a_finished_study_does_nothing_and_a_larger_plan_only_what_is_new(
    file: str, tmp_path: Path
) -> None:
    small = {"features": file, **INCREMENTAL}
    first, _ = make(plan_of(small), tmp_path / "out")
    again, made = make(plan_of(small), tmp_path / "out")
    assert made == []
    assert again.runs.equals(first.runs)
    larger = small | {"heads": [*INCREMENTAL["heads"], "slda"]}
    study, made = make(plan_of(larger, seeds="0-2"), tmp_path / "out")
    new = {(outcome.run.head, outcome.run.order) for outcome in made}
    assert new == {("slda", 0), ("slda", 1)} | {
        (head, 2) for head in ("linear", "cosine", "mean", "knn", "slda")
    }
    assert study.done.filter(study.done["digest"].is_in(first.done["digest"].implode())).equals(
        first.done
    )


def test_changed_data_are_another_study(file: str, tmp_path: Path) -> None:
    plan = plan_of({"features": file, **INCREMENTAL})
    before, _ = make(plan, tmp_path / "out")
    small_data(n=600).save(file)
    after, made = make(plan, tmp_path / "out")
    assert len(made) == after.done.height == 8
    assert not set(before.done["digest"]) & set(after.done["digest"])
    assert set(after.arrays("right_by_class")) == set(after.done["digest"])
    small_data().save(file)
    again, made = make(plan, tmp_path / "out")
    assert made == []
    assert again.done.equals(before.done)


def test_data_count_by_content_not_by_name(file: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(Path(file).read_bytes())
    ready = prepare(plan_of({"features": [file, str(copy)], **INCREMENTAL}), tmp_path)
    assert len(ready.runs) == 8
    other = small_data(n=600)
    other.save(copy)
    ready = prepare(plan_of({"features": [file, str(copy)], **INCREMENTAL}), tmp_path)
    assert len(ready.runs) == 16


def test_losses_are_those_of_the_head_itself(file: str, tmp_path: Path) -> None:
    plan = plan_of({"features": file, "scenario": "incremental:3", "heads": list(PAPER_HEADS)})
    study, made = make(plan, tmp_path / "out")
    linear = study.done.filter(study.done["head"] != "knn")
    names = ("repairs", "fates", "interference", "right_by_class")
    repairs, fates, hidden, right = (study.arrays(name, linear) for name in names)
    assert set(repairs) == set(fates) == set(hidden) == set(linear["digest"])
    for row in linear.iter_rows(named=True):
        digest = row["digest"]
        counts, curve = repairs[digest], right[digest]
        order = next(o.task_order for o in made if o.run.order == row["order"])
        for c in range(N_CLASSES):
            came = order.index(c // 2)
            was, now = curve[5 * (came + 1), c], curve[-1, c]
            # What was right and is lost, less what was wrong and is right now.
            assert counts[-1, c].sum() >= was - now
            assert counts[came, c].sum() == 0
        assert row["lost"] == counts[-1].sum()
        assert [row[name] for name in FATES] == fates[digest][-1].sum(0).tolist()
        assert [row[f"repair_{name}"] for name in REPAIRS] == counts[-1].sum(0).tolist()
        split = [row[f"interference_{name}"] for name in INTERFERENCE]
        assert split == hidden[digest][-1].sum(0).tolist()
        assert sum(split) == row["repair_no_later_classes"] + row["repair_either"]
        assert row["kept"] + row["gained"] == curve[-1].sum()
    whole = study.arrays("weight")
    assert set(whole) == set(linear.filter(linear["order"] == 0)["digest"])
    assert study.arrays("data_angles").keys() == whole.keys()


def test_when_a_class_arrived_is_stored(file: str, tmp_path: Path) -> None:
    plan = plan_of({"features": file, **INCREMENTAL})
    study, made = make(plan, tmp_path / "out")
    arrived, orders = study.arrays("arrived"), study.arrays("task_order")
    assert len(arrived) == 8
    for digest, places in arrived.items():
        assert places.dtype == np.int32
        order = orders[digest].tolist()
        assert places.tolist() == [order.index(c // 2) for c in range(N_CLASSES)]
    assert {tuple(order) for order in orders.values()} == {(0, 1, 2), (0, 2, 1)}
    assert all(o.arrived.shape == (N_CLASSES,) for o in made if isinstance(o, Result))


def test_stored_vectors_give_the_stored_answers(file: str, tmp_path: Path) -> None:
    heads = ["linear", "linear_no_bias+group", "slda", "mean", "median"]
    study, _ = make(plan_of({"features": file, **INCREMENTAL, "heads": heads}), tmp_path / "out")
    first = study.done.filter(study.done["order"] == 0)
    weights, biases = study.arrays("weight", first), study.arrays("bias", first)
    right = study.arrays("right_by_class", first)
    data = small_data()
    z, y = data.test.z.numpy(), data.test.y.numpy()
    for digest, weight in weights.items():
        for task in range(3):
            answers = (z @ weight[task].T + biases[digest][task]).argmax(axis=1)
            count = np.bincount(y[answers == y], minlength=N_CLASSES)
            np.testing.assert_array_equal(count, right[digest][5 * (task + 1)])
        losses = trace_losses(weight, biases[digest], z, y, np.array([0, 0, 1, 1, 2, 2]))
        assert losses.repairs.any()


def test_features_that_are_optional_may_be_missing(file: str, tmp_path: Path) -> None:
    wanted = {"features": [file, "core50/vgg16"], "scenario": "iid", "heads": ["mean"]}
    with pytest.raises(PlanError, match=r"experiment\[0\]: .*lastlayer extract core50 --root DIR"):
        prepare(plan_of(wanted), tmp_path)
    ready = prepare(plan_of(wanted | {"optional": True}), tmp_path)
    assert list(ready.missing) == ["core50/vgg16"]
    assert {run.features for run in ready.runs.values()} == {file}


def test_features_in_the_folder_are_found_by_their_full_name(tmp_path: Path) -> None:
    small_data().save(tmp_path / "core50" / "vgg16.safetensors")
    ready = prepare(plan_of({"features": "core50/vgg16", **INCREMENTAL}), tmp_path)
    assert isinstance(ready, Prepared)
    assert set(ready.data) == {"core50/vgg16"}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"scenario": "incremental:99"}, r"experiment\[1\]: .*99"),
        ({"scenario": "lifelong:place"}, r"experiment\[1\]: .*place"),
        ({"scenario": "cub200"}, r"experiment\[1\]: scenario 'cub200' has 200 classes"),
        ({"subset": [10]}, r"experiment\[1\]: a subset goes with"),
        ({"features": "gone.safetensors"}, r"experiment\[1\]: .*gone.safetensors"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    file: str, tmp_path: Path, wanted: dict[str, str], message: str
) -> None:
    good = {"features": file, **INCREMENTAL}
    with pytest.raises(PlanError, match=message):
        make(plan_of(good, good | wanted), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_altered_feature_file_is_refused(file: str, tmp_path: Path) -> None:
    content = bytearray(Path(file).read_bytes())
    content[-1] ^= 1
    Path(file).write_bytes(content)
    with pytest.raises(PlanError, match="checksum"):
        prepare(plan_of({"features": file, **INCREMENTAL}), tmp_path)


def test_held_out_samples_come_from_the_training_data(file: str, tmp_path: Path) -> None:
    plan = plan_of({"features": file, **INCREMENTAL, "held_out": 0.25})
    (data,) = prepare(plan, tmp_path).data.values()
    assert isinstance(data, Features)
    assert (len(data.train), len(data.test)) == (900, 300)
    whole = {row.tobytes() for row in small_data().train.z.numpy()}
    assert {row.tobytes() for row in data.test.z.numpy()} <= whole
    assert not {r.tobytes() for r in data.test.z.numpy()} & {
        r.tobytes() for r in data.train.z.numpy()
    }


def test_while_another_writes_it_refuses_unless_told_to_wait(file: str, tmp_path: Path) -> None:
    ready = prepare(plan_of({"features": file, **INCREMENTAL}), Path("features"))
    waits: list[str] = []

    def stop() -> None:
        waits.append("waits")
        raise InterruptedError

    with open_store(tmp_path):
        with pytest.raises(BusyError, match="another process is writing"):
            conduct(ready, "text", tmp_path, version="1", callbacks=Callbacks(on_wait=stop))
        with pytest.raises(WriteError):
            conduct(
                ready, "text", tmp_path, version="1", wait=True, callbacks=Callbacks(on_wait=stop)
            )
    assert waits == ["waits"]
